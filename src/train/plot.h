// The curves of a run as one SVG picture of three panels over the step: loss (training, smoothed, validation), learning rate with gradient
// norm, and MaxVio of the experts.
#pragma once

#include <string>

#include "train/metrics.h"

namespace k3::train {

std::string plot_svg(const RunMetrics& metrics, const std::string& title);

}  // namespace k3::train
