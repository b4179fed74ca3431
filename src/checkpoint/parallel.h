// Runs tasks 0..count-1 on all processors; the first exception of a task is thrown again when all threads have ended.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace k3 {

template <class Task>
void run_tasks(std::int64_t count, const Task& task) {
  const auto processors = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  const std::int64_t threads = std::min(count, std::max<std::int64_t>(processors, 1));
  std::atomic<std::int64_t> next = 0;
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto work = [&] {
    for (std::int64_t index = next++; index < count; index = next++) {
      try {
        task(index);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::thread> helpers;
  for (std::int64_t helper = 1; helper < threads; ++helper) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace k3
