#include "train/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace k3::train {
namespace {

constexpr double kWidth = 900, kLeft = 78, kRight = 24, kTop = 64, kGap = 46;
constexpr double kPlotWidth = kWidth - kLeft - kRight;
constexpr std::size_t kMaxPoints = 1500;  // of a drawn line

struct Point {
  double x = 0, y = 0;
};

struct Curve {
  std::string name, color;
  std::vector<Point> points;
  double width = 1.6, opacity = 1;
  bool dots = false;
};

struct Axis {
  double low = 0, high = 1, step = 1;
};

// About `count` ticks at 1, 2 or 5 times a power of ten, with the range widened to whole ticks.
Axis axis_for(double low, double high, int count) {
  if (!(high > low)) {
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room;
    high += room;
  }
  const double raw = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) {
      step = factor * power;
      break;
    }
  return {std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, step};
}

std::string tick_text(double value, double step) {
  if (std::abs(value) < step * 1e-6) return "0";
  if (std::abs(value) >= 1e5)
    return std::abs(value) >= 1e6 ? fmt::format("{:g}M", value / 1e6) : fmt::format("{:g}k", value / 1e3);
  if (std::abs(value) < 1e-3) return fmt::format("{:.0e}", value);
  return fmt::format("{:g}", std::round(value / step) * step);
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char letter : text) {
    if (letter == '<') safe += "&lt;";
    else if (letter == '>') safe += "&gt;";
    else if (letter == '&') safe += "&amp;";
    else safe += letter;
  }
  return safe;
}

std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= kMaxPoints) return points;
  std::vector<Point> few;
  for (std::size_t index = 0; index < kMaxPoints; ++index)
    few.push_back(points[index * (points.size() - 1) / (kMaxPoints - 1)]);
  return few;
}

std::vector<Point> smoothed(const std::vector<Point>& points) {  // exponential, over about a fiftieth of the run
  const double keep = 1.0 - 1.0 / std::max(2.0, static_cast<double>(points.size()) / 50.0);
  std::vector<Point> smooth;
  double sum = 0, weight = 0;
  for (const Point& point : points) {
    sum = keep * sum + point.y;
    weight = keep * weight + 1;
    smooth.push_back({point.x, sum / weight});
  }
  return smooth;
}

struct Panel {
  std::string label;
  std::vector<Curve> curves;
  double height = 180;
  bool from_zero = false;
};

// The loss of the first steps is far above the rest and would flatten everything: the axis starts where the bulk is.
double upper_limit(const Panel& panel) {
  std::vector<double> values;
  for (const Curve& curve : panel.curves)
    for (const Point& point : curve.points) values.push_back(point.y);
  std::sort(values.begin(), values.end());
  const double top = values.back(), bulk = values[values.size() * 98 / 100], low = values.front();
  return top - low > 2.5 * (bulk - low) && bulk > low ? low + 1.25 * (bulk - low) : top;
}

std::string draw(const Panel& panel, double top, const Axis& x_axis, bool with_steps) {
  double low = 1e300;
  for (const Curve& curve : panel.curves)
    for (const Point& point : curve.points) low = std::min(low, point.y);
  const Axis y_axis = axis_for(panel.from_zero ? 0 : low, upper_limit(panel), 5);
  const double bottom = top + panel.height;
  const auto place_x = [&](double x) { return kLeft + (x - x_axis.low) / (x_axis.high - x_axis.low) * kPlotWidth; };
  const auto place_y = [&](double y) {
    return bottom - (std::clamp(y, y_axis.low, y_axis.high) - y_axis.low) / (y_axis.high - y_axis.low) * panel.height;
  };
  std::string svg;
  for (double y = y_axis.low; y <= y_axis.high + y_axis.step * 0.01; y += y_axis.step) {
    svg += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#e3e6ea'/>\n", kLeft, place_y(y),
                       kLeft + kPlotWidth, place_y(y));
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>\n", kLeft - 8, place_y(y) + 4,
                       tick_text(y, y_axis.step));
  }
  for (double x = x_axis.low; x <= x_axis.high + x_axis.step * 0.01; x += x_axis.step) {
    svg += fmt::format("<line x1='{0:.1f}' y1='{1:.1f}' x2='{0:.1f}' y2='{2:.1f}' stroke='#eff1f3'/>\n", place_x(x),
                       top, bottom);
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n", place_x(x), bottom + 17,
                       tick_text(x, x_axis.step));
  }
  svg += fmt::format("<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='none' stroke='#9aa2ab'/>\n",
                     kLeft, top, kPlotWidth, panel.height);
  if (with_steps)
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>step</text>\n", kLeft + kPlotWidth / 2,
                       bottom + 36);
  svg += fmt::format("<text transform='translate(18 {:.1f}) rotate(-90)' text-anchor='middle'>{}</text>\n",
                     top + panel.height / 2, escaped(panel.label));
  double legend = kLeft + 2;
  for (const Curve& curve : panel.curves) {
    std::string path;
    for (const Point& point : thinned(curve.points))
      path += fmt::format("{:.1f},{:.1f} ", place_x(point.x), place_y(point.y));
    svg += fmt::format(
        "<polyline points='{}' fill='none' stroke='{}' stroke-width='{}' stroke-opacity='{}' "
        "stroke-linejoin='round'/>\n",
        path, curve.color, curve.width, curve.opacity);
    if (curve.dots)
      for (const Point& point : thinned(curve.points))
        svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2.6' fill='{}'/>\n", place_x(point.x), place_y(point.y),
                           curve.color);
    svg += fmt::format(
        "<line x1='{0:.1f}' y1='{1:.1f}' x2='{2:.1f}' y2='{1:.1f}' stroke='{3}' stroke-width='3' "
        "stroke-opacity='{4}'/>\n",
        legend, top - 12, legend + 20, curve.color, curve.opacity);
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}'>{}</text>\n", legend + 26, top - 8, escaped(curve.name));
    legend += 46 + 7.2 * static_cast<double>(curve.name.size());
  }
  return svg;
}

}  // namespace

std::string plot_svg(const RunMetrics& metrics, const std::string& title) {
  if (metrics.steps.empty()) throw_user("{}: metrics.jsonl has no steps yet; train first", title);
  Curve loss{"training", "#4e79a7", {}, 1.0, 0.35}, rate{"learning rate", "#59a14f", {}},
      norm{"gradient norm", "#b07aa1", {}, 1.2},
      violation{"MaxVio: load of the fullest expert over the mean, minus 1", "#e15759", {}, 1.2};
  for (const StepMetrics& step : metrics.steps) {
    const auto x = static_cast<double>(step.step);
    loss.points.push_back({x, step.loss});
    rate.points.push_back({x, step.learning_rate});
    norm.points.push_back({x, step.gradient_norm});
    if (step.max_violation >= 0) violation.points.push_back({x, step.max_violation});
  }
  Panel losses{"loss (nats per token)", {loss, {"training, smoothed", "#274b73", smoothed(loss.points), 2.0}}, 300};
  const std::vector<std::string> colors = {"#f28e2b", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f"};
  std::map<std::string, Curve> validation;
  for (const ValidationMetrics& point : metrics.validation) {
    Curve& curve = validation[point.source];
    if (curve.name.empty())
      curve = {"validation " + point.source, colors[(validation.size() - 1) % colors.size()], {}, 1.8, 1, true};
    curve.points.push_back({static_cast<double>(point.step), point.loss});
  }
  for (auto& [name, curve] : validation) losses.curves.push_back(curve);
  std::vector<Panel> panels = {losses, {"learning rate", {rate}, 110, true}, {"gradient norm", {norm}, 110, true}};
  if (!violation.points.empty()) panels.push_back({"MaxVio", {violation}, 110, true});

  const StepMetrics& last = metrics.steps.back();
  const Axis x_axis = axis_for(0, static_cast<double>(last.step), 8);
  const Axis exact{0, static_cast<double>(std::max<std::int64_t>(1, last.step)), x_axis.step};
  double top = kTop + 20;
  std::string body;
  for (std::size_t index = 0; index < panels.size(); ++index) {
    body += draw(panels[index], top, exact, index + 1 == panels.size());
    top += panels[index].height + kGap;
  }
  const double height = top + 8;
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0:.0f} {1:.0f}' width='{0:.0f}' height='{1:.0f}' "
      "font-family='DejaVu Sans, Helvetica, Arial, sans-serif' font-size='12' fill='#333a42'>\n<rect width='100%' "
      "height='100%' fill='white'/>\n",
      kWidth, height);
  svg += fmt::format("<text x='{:.0f}' y='28' font-size='17' font-weight='bold'>{}</text>\n", kLeft, escaped(title));
  svg += fmt::format(
      "<text x='{:.0f}' y='48'>{} steps, {:.1f} M tokens, {:.0f} s; last loss {:.4f}, {:.3f} bits per byte</text>\n",
      kLeft, last.step, static_cast<double>(last.tokens) / 1e6, last.seconds, last.loss, last.bits_per_byte);
  return svg + body + "</svg>\n";
}

}  // namespace k3::train
