#include "cli/tools/draw/svg_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

namespace distattn {
namespace {

/// XML has no way to write control characters, which the name of a machine from a file may hold.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

const char* word_of(Anchor anchor) {
  switch (anchor) {
    case Anchor::start:
      return "start";
    case Anchor::middle:
      return "middle";
    case Anchor::end:
      return "end";
  }
  return "start";
}

int channel(double linear) {
  const double value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * std::pow(linear, 1 / 2.4) - 0.055;
  return static_cast<int>(std::lround(255 * std::clamp(value, 0.0, 1.0)));
}

}  // namespace

void SvgPage::rect(const Box& box, std::string_view style_class, std::string_view fill, std::string_view tooltip) {
  auto out = std::back_inserter(body_);
  fmt::format_to(out, R"(<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}")", style_class, box.x,
                 box.y, box.width, box.height);
  if (!fill.empty()) fmt::format_to(out, R"( fill="{}")", fill);
  if (tooltip.empty()) {
    body_ += "/>\n";
  } else {
    fmt::format_to(out, "><title>{}</title></rect>\n", escaped(tooltip));
  }
}

void SvgPage::line(double x0, double y0, double x1, double y1, std::string_view style_class) {
  fmt::format_to(std::back_inserter(body_), R"(<line class="{}" x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}"/>)",
                 style_class, x0, y0, x1, y1);
  body_ += '\n';
}

void SvgPage::text(double x, double y, std::string_view words, std::string_view style_class, Anchor anchor) {
  fmt::format_to(std::back_inserter(body_), R"(<text class="{}" x="{:.2f}" y="{:.2f}" text-anchor="{}">{}</text>)",
                 style_class, x, y, word_of(anchor), escaped(words));
  body_ += '\n';
}

void SvgPage::open_group(std::string_view style_class) {
  fmt::format_to(std::back_inserter(body_), "<g class=\"{}\">\n", style_class);
}
void SvgPage::close_group() { body_ += "</g>\n"; }

std::string SvgPage::finish(double width, double height, std::string_view style) const {
  return fmt::format(R"(<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}">
<style>{2}</style>
<rect width="100%" height="100%" fill="#ffffff"/>
{3}</svg>
)",
                     width, height, style, body_);
}

/// From Oklab's polar form, whose lightness is even to the eye (B. Ottosson, 2020).
std::string circle_colour(int index, int count) {
  constexpr double lightness = 0.79, chroma = 0.11;
  const double hue = 2 * std::numbers::pi * (index + 0.1) / count;
  const double a = chroma * std::cos(hue), b = chroma * std::sin(hue);
  const auto cubed = [](double x) { return x * x * x; };
  const double l = cubed(lightness + 0.3963377774 * a + 0.2158037573 * b);
  const double m = cubed(lightness - 0.1055613458 * a - 0.0638541728 * b);
  const double s = cubed(lightness - 0.0894841775 * a - 1.2914855480 * b);
  return fmt::format("#{:02x}{:02x}{:02x}", channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
                     channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
                     channel(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s));
}

}  // namespace distattn
