// Pictures, in SVG. They take figures, and know nothing of jobs.

const SVG = "http://www.w3.org/2000/svg";

export const PARTS = ["computing", "data", "communication", "others"];

function shape(name, attributes) {
  const e = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  return e;
}

function picture(width, height, label) {
  return shape("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
}

// strip draws a column for each group of ranks. shares are fractions by part, null if nothing is known.
export function strip(groups, chosen) {
  const svg = picture(groups.length, 1, "");
  svg.setAttribute("aria-hidden", "true"); // the list around it speaks
  const gap = groups.length > 60 ? 0 : groups.length * 0.002; // a column is one unit wide
  groups.forEach(({ shares }, i) => {
    const x = i + gap / 2, width = 1 - gap;
    if (!shares) {
      svg.append(shape("rect", { class: "none", x, y: 0, width, height: 1 }));
    } else {
      let y = 1;
      for (const part of PARTS) {
        const height = shares[part];
        svg.append(shape("rect", { class: part, x, y: (y -= height), width, height }));
      }
    }
    if (i === chosen) svg.append(shape("rect", { class: "mark", x, y: 0, width, height: 1 }));
  });
  return svg;
}

// curve draws values over time, with a line at each mark. Points without a value leave a gap.
export function curve(points, marks, from, to, label) {
  const svg = picture(1000, 100, label);
  const known = points.filter((p) => p.value !== null);
  const top = Math.max(...known.map((p) => p.value), 0) * 1.1 || 1;
  const x = (at) => (1000 * (at - from)) / (to - from);
  let path = "", pen = false;
  for (const { at, value } of points) {
    if (value !== null) path += `${pen ? "L" : "M"}${x(at).toFixed(1)} ${(100 - (100 * value) / top).toFixed(1)}`;
    pen = value !== null;
  }
  for (const at of marks) if (at >= from) svg.append(shape("line", { x1: x(at), x2: x(at), y1: 0, y2: 100 }));
  svg.append(shape("path", { d: path }));
  return svg;
}
