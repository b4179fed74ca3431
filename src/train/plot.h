// The curves of a run as one SVG picture: panels over the step for the loss (training, smoothed, validation), the
// learning rate, the gradient norm and, with routers, MaxVio of the experts.
#pragma once

#include <string>

#include "train/metrics.h"

namespace k3::train {

std::string plot_svg(const RunMetrics& metrics, const std::string& title);

}  // namespace k3::train
