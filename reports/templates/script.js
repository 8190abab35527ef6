"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Set();
  let plotly = null;

  /* Plotly's script lies in the page as base64 of gzip: it is unpacked when a figure is first seen. */
  function unpacked() {
    plotly ??= (async () => {
      const packed = atob(document.getElementById("plotly").textContent);
      const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script);
      return window.Plotly;
    })();
    return plotly;
  }

  /* Colours are names of the style sheet: resolved for the scheme at hand. */
  function colored(value, style) {
    if (typeof value === "string") {
      const name = /^var\((--[\w-]+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((each) => colored(each, style));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, colored(each, style)]));
    return value;
  }

  function axis(own, narrow) {
    const title = typeof own?.title === "string" ? { text: own.title } : own?.title;
    return { gridcolor: "var(--line)", zerolinecolor: "var(--line)", linecolor: "var(--line)",
      automargin: true, nticks: narrow ? 5 : undefined, exponentformat: "none", minorloglabels: "complete", ...own, title };
  }

  async function draw(canvas) {
    const figure = figures[canvas.dataset.figure];
    const Plotly = await unpacked();
    const style = getComputedStyle(document.documentElement);
    const narrow = canvas.clientWidth < 520;
    const { xaxis, yaxis, ...own } = figure.layout;
    const layout = colored({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 13, color: "var(--ink)" },
      colorway: [1, 2, 3, 4, 5, 6, 7, 8].map((number) => `var(--series-${number})`),
      margin: { l: 8, r: 12, t: figure.layout.showlegend === false ? 34 : 8, b: 8 }, height: figure.height, autosize: true,
      hoverlabel: { bgcolor: "var(--surface)", bordercolor: "var(--line)", font: { color: "var(--ink)" } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: "var(--faint)", activecolor: "var(--ink)" },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
      ...own, xaxis: axis(xaxis, narrow), yaxis: axis(yaxis, false),
    }, style);
    const config = { responsive: true, displaylogo: false,
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], displayModeBar: narrow ? false : "hover" };
    const first = !drawn.has(canvas);
    drawn.add(canvas);
    await Plotly.react(canvas, colored(figure.data, style), layout, config);
    if (first) canvas.on("plotly_click", (event) => {
      const anchor = event.points[0]?.customdata;
      if (typeof anchor === "string" && document.getElementById(anchor)) location.hash = anchor;
    });
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) {
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "300px" });
  document.querySelectorAll(".canvas[data-figure]").forEach((canvas) => seen.observe(canvas));
  dark.addEventListener("change", () => drawn.forEach(draw));

  /* A link into something closed opens it. */
  function open() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let each = target; each; each = each.parentElement)
      if (each.tagName === "DETAILS") { each.open = true; each.classList.remove("away"); }
    target.scrollIntoView();
    target.querySelector("summary")?.focus({ preventScroll: true });
  }
  addEventListener("hashchange", open);
  open();

  const trajectories = [...document.querySelectorAll("details.trajectory")];
  const steps = [...document.querySelectorAll("details.step")];
  const find = document.getElementById("find"), came = document.getElementById("came");
  function narrow() {
    const word = find.value.trim().toLowerCase(), kinds = came?.value ? came.value.split(" ") : null;
    let count = 0;
    for (const step of steps) {
      const text = step.querySelector("summary").textContent + (step.querySelector("dl.said")?.textContent ?? "");
      const shown = (!kinds || kinds.includes(step.dataset.came)) && text.toLowerCase().includes(word);
      step.classList.toggle("away", !shown);
      count += shown;
    }
    const narrowed = Boolean(word || kinds);
    for (const each of trajectories) {
      const left = steps.length ? each.querySelector("details.step:not(.away)")
        : each.textContent.toLowerCase().includes(word);
      each.classList.toggle("away", !left);
      if (narrowed && left && steps.length) each.open = true;
    }
    if (!steps.length) count = trajectories.filter((each) => !each.classList.contains("away")).length;
    document.getElementById("matches").textContent = narrowed ? `${count} of ${(steps.length ? steps : trajectories).length}` : "";
  }
  find?.addEventListener("input", narrow);
  came?.addEventListener("change", narrow);
  document.getElementById("open-all")?.addEventListener("click", () => trajectories.forEach((each) => { each.open = true; }));
  document.getElementById("close-all")?.addEventListener("click", () => [...trajectories, ...steps].forEach((each) => { each.open = false; }));
})();
