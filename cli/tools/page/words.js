"use strict";
// How quantities are written, colours of ranks, and elements.

function tokensInWords(n) {
  if (n >= 1024 * 1024 && n % (1024 * 1024) === 0) return `${n / 1024 / 1024}M`;
  return n >= 1024 && n % 1024 === 0 ? `${n / 1024}K` : n.toLocaleString("en");
}
function bytesInWords(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
  return unit === 0 ? `${bytes} B` : `${bytes.toFixed(2)} ${units[unit]}`;
}
function secondsInWords(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(3)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toFixed(3)} ms` : `${(seconds * 1e6).toFixed(1)} µs`;
}
function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}
function counted(n, what) {
  return `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
}

// Colours around the circle of hues (Oklab's polar form); of many ranks, neighbours differ in lightness.
function rankColour(rank, ranks) {
  if (rank < 0) return "transparent";
  const lightness = ranks <= 12 ? 0.78 : [0.86, 0.74, 0.63][rank % 3];
  const hue = 2 * Math.PI * (rank + 0.1) / ranks;
  const a = 0.115 * Math.cos(hue), b = 0.115 * Math.sin(hue);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3;
  const channel = (linear) => {
    const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, value)));
  };
  return `rgb(${channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s)},` +
    `${channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s)},` +
    `${channel(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)})`;
}

// An element; children are elements or text, which is never taken for HTML.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function byId(id) {
  return document.getElementById(id);
}
function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A canvas of CSS pixels, sharp on any screen.
function sized(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  return context;
}
