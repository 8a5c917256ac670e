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

// ring draws hosts on an ellipse, and what each sends to the next one. slowest is the index of the edge that sets the pace.
export function ring(edges, slowest, label, narrow) {
  const W = narrow ? 420 : 720, H = 360, n = edges.length;
  const svg = shape("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label });
  const at = (i, grow = 0) => {
    const angle = (2 * Math.PI * i) / n - Math.PI / 2;
    return [W / 2 + (W / 2 - 130 + grow) * Math.cos(angle), H / 2 + (120 + grow * 0.7) * Math.sin(angle)];
  };
  const most = Math.max(...edges.map((e) => e.rate), 1), bends = n < 20 ? 24 : 4;
  const put = ([x, y], text, kind, inside) => {
    const sides = inside ? ["start", "end"] : ["end", "start"];
    const anchor = x > W / 2 + 40 ? sides[1] : x < W / 2 - 40 ? sides[0] : "middle";
    const t = shape("text", { x: x.toFixed(1), y: (y + 5).toFixed(1), "text-anchor": anchor, class: kind });
    t.textContent = text;
    svg.append(t);
  };
  edges.forEach((e, i) => {
    const kind = i === slowest ? "slow" : "edge";
    const path = Array.from({ length: bends + 1 }, (_, k) => at(i + k / bends).map((v) => v.toFixed(1)).join(" ")).join("L");
    svg.append(shape("path", { d: `M${path}`, class: kind, "stroke-width": (i === slowest ? 5 : 1 + (3 * e.rate) / most).toFixed(1) }));
    if (n <= 60) { // an arrow, in the middle
      const [x, y] = at(i + 0.5), [nx, ny] = at(i + 0.53);
      const turn = (Math.atan2(ny - y, nx - x) * 180) / Math.PI;
      svg.append(shape("path", { d: "M-5 -5L5 0L-5 5Z", transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) rotate(${turn.toFixed(1)})`, class: `${kind} arrow` }));
    }
    if (n <= 12 || i === slowest) put(at(i + 0.5, -18), e.text, i === slowest ? "slow" : "soft", true);
  });
  edges.forEach((e, i) => {
    if (n <= 200) {
      const [cx, cy] = at(i);
      svg.append(shape("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: n <= 24 ? 7 : 3, class: e.silent ? "slow" : "host" }));
    }
    if (n <= 24 || i === slowest) put(at(i, 20), e.from, e.silent ? "slow" : "");
  });
  return svg;
}

// lane draws what happened over time: spans of time, and moments.
export function lane(spans, from, to, label) {
  const svg = picture(1000, 20, label);
  const x = (at) => (1000 * Math.min(Math.max(at - from, 0), to - from)) / (to - from);
  for (const { begin, end, kind } of spans) {
    if (end < from) continue;
    svg.append(shape("rect", { x: x(begin).toFixed(1), y: 2, height: 16, width: Math.max(x(end) - x(begin), 3).toFixed(1), class: kind }));
  }
  return svg;
}
