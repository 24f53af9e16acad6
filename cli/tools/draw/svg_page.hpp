#pragma once
/// Elements of an SVG page, appended one after the other.

#include <string>
#include <string_view>

namespace distattn {

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

enum class Anchor { start, middle, end };

class SvgPage {
 public:
  void rect(const Box& box, std::string_view style_class, std::string_view fill = {}, std::string_view tooltip = {});
  void line(double x0, double y0, double x1, double y1, std::string_view style_class);
  void text(double x, double y, std::string_view words, std::string_view style_class, Anchor anchor = Anchor::start);
  void open_group(std::string_view style_class);
  void close_group();

  /// The page with everything drawn so far.
  std::string finish(double width, double height, std::string_view style) const;

 private:
  std::string body_;
};

/// "#rrggbb" of one of `count` colours of equal lightness, spread around the circle of hues.
std::string circle_colour(int index, int count);

}  // namespace distattn
