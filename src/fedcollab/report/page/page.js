"use strict";
// Draws the charts and moves them with the slider. Everything shown was computed beforehand; names only ever become text.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = read("data");
  const specs = read("charts");
  const { names, quantities, slider } = data;
  const count = names.length;
  const views = {};

  // The matrix comes as the upper triangle in thousandths.
  const cells = () => {
    const at = (i, j) => i * count - (i * (i + 1)) / 2 + j - i - 1;
    const thousandth = (list, k) => (list && list[k] !== null ? list[k] / 1000 : null);
    const rows = [];
    for (let i = 0; i < count; i++) {
      for (let j = 0; j < count; j++) {
        const k = at(Math.min(i, j), Math.max(i, j));
        rows.push(i === j ? { i, j, d: 0 } : { i, j, d: thousandth(data.distance, k), e: thousandth(data.error, k) });
      }
    }
    return rows;
  };

  // On a narrow screen a table is shown row below row (see page.css): each cell then says which column it is of.
  const stack = (table) => {
    const heads = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent);
    const roles = { thead: "rowgroup", tbody: "rowgroup", tr: "row", "thead th": "columnheader", "tbody th": "rowheader", td: "cell" };
    table.setAttribute("role", "table");
    for (const [part, role] of Object.entries(roles)) table.querySelectorAll(part).forEach((element) => element.setAttribute("role", role));
    table.querySelectorAll("td").forEach((cell) => (cell.dataset.label = heads[cell.cellIndex]));
    table.classList.add("stacked");
  };
  document.querySelectorAll(":is(#training, #advice, #check) .scroll table").forEach(stack);

  const size = (element) => {
    const width = Math.max(240, Math.floor(element.clientWidth));
    return [width, Math.min(width + 30, 620)];
  };

  // Names beside a picture are no higher than its rows, on a phone too.
  const smaller = (spec, side) =>
    JSON.parse(JSON.stringify(spec), function (key, value) {
      return key === "labelFontSize" && this.tickCount ? Math.max(4, Math.min(value, Math.floor(side / this.tickCount))) : value;
    });

  const draw = async (id, datasets) => {
    const element = document.getElementById(id);
    if (!element || !specs[id]) return;
    const square = element.parentElement.classList.contains("square");
    const spec = square ? smaller(specs[id], size(element)[0] - 110) : specs[id];
    spec.datasets = { ...spec.datasets, ...datasets };
    if (square) {
      [spec.width, spec.height] = size(element);
      spec.autosize = { type: "fit", contains: "padding" };
    } else {
      spec.width = "container";
    }
    const renderer = square && data.distance && count > data.crisp ? "canvas" : "svg";
    const options = { actions: false, renderer, tooltip: { disableDefaultStyle: true } };
    const { view } = await vegaEmbed(element, spec, options);
    views[id] = view;
    if (square) addEventListener("resize", () => view.width(size(element)[0]).height(size(element)[1]).runAsync());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => renderer === "canvas" && view.resize().runAsync());
  };

  // Too many clients to name: means over each coalition, and over all that are alone.
  const inGroups = (bars, groups) => {
    const sets = groups.map((members, k) => [`coalition ${k + 1} (${members.length} clients)`, k + 1, members]).filter(([, , members]) => members.length > 1);
    const alone = groups.filter((members) => members.length === 1).flat();
    if (alone.length) sets.push([`alone (${many(alone.length, "client")})`, sets.length + 1, alone]);
    const of = new Map(bars.map((bar) => [bar.name, bar]));
    const mean = (members, key) => members.reduce((sum, i) => sum + of.get(names[i])[key], 0) / members.length;
    return sets.map(([name, coalition, members], place) => ({
      name, place, coalition, little: mean(members, "little"), unlike: mean(members, "unlike"), alone: mean(members, "alone"),
    }));
  };

  // What is shown now: the coalitions of a segment, or everyone, or nobody, at the segment's C.
  const state = (segment, mode) => {
    const labels = mode === "path" ? segment.labels : names.map((_, i) => (mode === "everyone" ? 0 : i));
    const shift = { path: segment.shift, everyone: slider.everyone, nobody: null }[mode];
    const groups = [];
    labels.forEach((label, i) => (groups[label] ??= []).push(i));
    const mass = groups.map((members) => members.reduce((sum, i) => sum + quantities[i], 0));
    const order = groups.flat();
    const rank = [];
    order.forEach((client, place) => (rank[client] = place));
    const bars = order.map((i, place) => ({
      name: names[i], place, coalition: labels[i] + 1,
      little: segment.C / Math.sqrt(mass[labels[i]]),
      unlike: shift ? shift[i] / 10000 : 0,
      alone: segment.C / Math.sqrt(quantities[i]),
    }));
    const shownBars = names.length > data.named ? inGroups(bars, groups) : bars;
    let start = 0;
    const blocks = groups.map((members, k) => ({ coalition: k + 1, start, end: (start += members.length) }));
    return { labels, groups, order, rank, bars: shownBars, blocks, total: segment.objective[mode] };
  };

  const totals = (segment, mode) =>
    [["path", "best coalitions"], ["everyone", "everyone together"], ["nobody", "nobody together"]].map(([key, way]) => {
      const value = segment.objective[key];
      const times = value / segment.objective.path;
      const percent = (100 * (times - 1)).toFixed(times < 1.1 ? 1 : 0);
      const more = times >= 2 ? ` (${times.toFixed(times < 10 ? 1 : 0)} times)` : times > 1.0005 ? ` (+${percent} %)` : "";
      return { way, value, shown: key === mode, label: figure(value) + more };
    });

  const figure = (value) => Number(value.toPrecision(3)).toLocaleString("en");
  const many = (n, one) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;

  // How many clients have other partners than in the run's answer.
  const moved = (groups, reference) => {
    const key = (members) => members.join(",");
    const old = new Map();
    reference.forEach((label, i) => old.set(label, [...(old.get(label) ?? []), i]));
    const same = new Set([...old.values()].map(key));
    return groups.filter((members) => !same.has(key(members))).reduce((sum, members) => sum + members.length, 0);
  };

  const say = (index, mode, now) => {
    const segment = slider.segments[index];
    const range = segment.words === "any" ? "For every C" : `For C ${segment.words}`;
    const what = { path: "the best choice is", everyone: "shown is everyone together,", nobody: "shown is nobody together," }[mode];
    const sizes = now.groups.map((members) => members.length);
    const alone = sizes.filter((n) => n === 1).length;
    const grouped = sizes.length - alone;
    const parts = [];
    if (grouped) parts.push(many(grouped, "coalition") + " of " + many(sizes.filter((n) => n > 1).reduce((a, b) => a + b, 0), "client"));
    if (alone) parts.push(many(alone, "client") + " alone");
    const marks = [index === slider.suggested && "the suggested C", index === slider.chosen && "the answer above"].filter(Boolean);
    const mark = marks.length && mode === "path" ? ` (${marks.join(", ")})` : "";
    const others = moved(now.groups, slider.answer ?? slider.segments[slider.suggested].labels);
    const above = slider.answer ? "in the answer above" : "with the suggested C";
    const change = others ? `${many(others, "client")} would have other partners than ${above}.` : `Everybody has the same partners as ${above}.`;
    const gain = { path: segment.gain, everyone: slider.everyone_gain, nobody: null }[mode];
    const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;
    const told = gain === null ? "" : ` Fitted to what was measured, the bound expects ${signed(gain)} in ${slider.loss} against training alone, on average (+ is better).`;
    return `${range} ${what} ${parts.join(" and ")}${mark}. ${change}${told}`;
  };

  // Names, with runs of numbered ones drawn together.
  const parts = names.map((name) => /^(.*?)(\d+)$/s.exec(name));
  const follows = (i, j) => parts[i] && parts[j] && parts[i][1] === parts[j][1] && Number(parts[j][2]) === Number(parts[i][2]) + 1;
  const ranges = (members) => {
    const runs = [];
    for (const i of members) {
      const run = runs.at(-1);
      if (run && follows(run.at(-1), i)) run.push(i);
      else runs.push([i]);
    }
    return runs.map((run) => (run.length > 2 ? `${names[run[0]]} … ${names[run.at(-1)]}` : run.map((i) => names[i]).join(", "))).join(", ");
  };

  // One line a coalition; those who train alone share the last line.
  const list = (now) => {
    const line = (mark, text) => {
      const item = document.createElement("li");
      item.append(mark, ` ${text}`);
      return item;
    };
    const items = [];
    now.groups.forEach((members, k) => {
      if (members.length === 1) return;
      const badge = document.createElement("span");
      badge.className = `badge c${k % data.palette}`;
      badge.textContent = k + 1;
      items.push(line(badge, `${ranges(members)} (${members.length} clients)`));
    });
    const alone = now.groups.filter((members) => members.length === 1).flat();
    if (alone.length) items.push(line("Alone:", `${ranges(alone)} (${many(alone.length, "client")})`));
    document.getElementById("shown").replaceChildren(...items);
  };

  let waiting = false;
  const update = async () => {
    const input = document.getElementById("c");
    const index = Number(input.value);
    const mode = document.querySelector("input[name=mode]:checked").value;
    const segment = slider.segments[index];
    const now = state(segment, mode);
    const words = say(index, mode, now);
    document.getElementById("said").textContent = words;
    input.setAttribute("aria-valuetext", words.split(". ")[0]);
    list(now);
    if (waiting) return;
    waiting = true;
    await new Promise(requestAnimationFrame);
    waiting = false;
    show();
  };

  const show = () => {
    const index = Number(document.getElementById("c").value);
    const mode = document.querySelector("input[name=mode]:checked").value;
    const segment = slider.segments[index];
    const now = state(segment, mode);
    views.path?.signal("current", index).runAsync();
    views.matrix?.signal("order", now.order).signal("rank", now.rank).data("blocks", now.blocks).runAsync();
    views.bounds?.data("bars", now.bars).runAsync();
    views.totals?.data("totals", totals(segment, mode)).runAsync();
  };

  // Rows that belong to a coalition show when it is opened, or when they are found.
  const find = () => {
    const wanted = document.getElementById("find").value.trim().toLowerCase();
    const opened = new Set([...document.querySelectorAll("#client-table button[aria-expanded=true]")].map((b) => b.dataset.coalition));
    let left = 0;
    for (const row of document.querySelectorAll("#client-table tbody tr:not(.group)")) {
      const member = row.dataset.member;
      const found = row.textContent.toLowerCase().includes(wanted);
      row.hidden = !found || (!wanted && member !== undefined && !opened.has(member));
      left += found;
    }
    document.getElementById("found").textContent = wanted ? many(left, "client") : "";
  };

  const open = (event) => {
    const button = event.target.closest("button[data-coalition]");
    if (!button) return;
    button.setAttribute("aria-expanded", button.getAttribute("aria-expanded") === "true" ? "false" : "true");
    find();
  };

  const start = async () => {
    document.getElementById("find")?.addEventListener("input", find);
    document.getElementById("client-table")?.addEventListener("click", open);
    if (slider) {
      const input = document.getElementById("c");
      input.addEventListener("input", update);
      document.querySelectorAll("input[name=mode]").forEach((radio) => radio.addEventListener("change", update));
      document.getElementById("suggested").addEventListener("click", () => {
        input.value = slider.suggested;
        document.querySelector("input[name=mode][value=path]").checked = true;
        update();
      });
      const segment = slider.segments[Number(input.value)];
      const now = state(segment, "path");
      await Promise.all([
        specs.matrix && draw("matrix", { cells: cells(), blocks: now.blocks }),
        draw("totals", { totals: totals(segment, "path") }),
        draw("bounds", { bars: now.bars }),
        draw("path", {}),
      ]);
      views.path.addEventListener("click", (_, item) => {
        if (item?.datum?.index === undefined) return;
        input.value = item.datum.index;
        update();
      });
      update();
    }
    if (data.weights) {
      const thousandths = data.weights.flatMap((row, i) => row.map((w, j) => ({ i, j, w: w / 1000 })));
      await draw("weights", { weights: thousandths });
    }
    if (data.distance) await draw("matrix-fixed", { cells: cells(), blocks: data.blocks });
    for (const id of Object.keys(specs)) if (!views[id]) await draw(id, {});
    document.documentElement.dataset.ready = "yes";
  };
  start();
})();
