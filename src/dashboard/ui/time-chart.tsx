import { useEffect, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { clockTime, count } from "../lib/format.ts";
import { theme } from "../lib/prefs.ts";
import { Section } from "./basics.tsx";

export type ChartTone = "completed" | "failed" | "cancelled" | "lag";

export interface ChartLine {
  name: string;
  tone: ChartTone;
  values: readonly number[];
}

interface TimeChartProps {
  /** Milliseconds, rising. */
  at: readonly number[];
  lines: readonly ChartLine[];
  /** Bars that stand on each other, or lines with the ground under them. */
  as: "bars" | "lines";
  /** The same in words. */
  said: string;
}

const height = 140;
const barShare = 0.8;
const groundAlpha = 0.15;

/** Values over time, with both axes; the values under the pointer are written below. */
export function TimeChart({ at, lines, as, said }: TimeChartProps) {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const shown = useRef({ at, lines });
  shown.current = { at, lines };
  const names = lines.map(({ name, tone }) => `${tone} ${name}`).join("\n");
  useEffect(() => {
    const { current: place } = host;
    if (!place) return;
    const over = new AbortController();
    const draw = async () => {
      const { default: Plot } = await import("uplot");
      if (over.signal.aborted) return;
      chart.current?.destroy();
      chart.current = new Plot(optionsOf(Plot, place, { as, shown }), dataOf(shown.current, as), place);
    };
    void draw();
    const sizes = new ResizeObserver(() => chart.current?.setSize({ width: place.clientWidth, height }));
    sizes.observe(place);
    // Colours are drawn, not styled: they are looked up anew when the theme turns.
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw, over);
    return () => {
      over.abort();
      sizes.disconnect();
      chart.current?.destroy();
      chart.current = undefined;
    };
  }, [as, names, theme.value]);
  useEffect(() => chart.current?.setData(dataOf(shown.current, as)), [at, lines, as]);
  return (
    <figure class="chart" role="img" aria-label={said}>
      <div ref={host} aria-hidden="true">
        {lines.map(({ tone }) => (
          <i key={tone} class={`chart-tone ${tone}`} />
        ))}
      </div>
      <figcaption>{said}</figcaption>
    </figure>
  );
}

type ChartData = Pick<TimeChartProps, "at" | "lines">;

/** Bars are drawn from the sum of all down, each over the one before. */
function dataOf({ at, lines }: ChartData, as: TimeChartProps["as"]): uPlot.AlignedData {
  const seconds = at.map((ms) => ms / 1_000);
  if (as === "lines") return [seconds, ...lines.map(({ values }) => [...values])];
  const sums = lines.map((_, from) =>
    at.map((_, place) => lines.slice(from).reduce((sum, { values }) => sum + values[place]!, 0)),
  );
  return [seconds, ...sums];
}

function optionsOf(
  Plot: typeof uPlot,
  place: HTMLElement,
  { as, shown }: { as: TimeChartProps["as"]; shown: { current: ChartData } },
): uPlot.Options {
  const colorOf = (of: Element) => getComputedStyle(of).color;
  const axis = {
    stroke: colorOf(place),
    font: `11px ${getComputedStyle(place).fontFamily}`,
    grid: { stroke: getComputedStyle(place).borderTopColor, width: 1 },
    ticks: { show: false },
  };
  /** Half a bar, which stands on both sides of its time. */
  const half = () => {
    const [first = 0, second = first] = as === "bars" ? shown.current.at : [];
    return (second - first) / 2_000;
  };
  const bars = Plot.paths.bars?.({ size: [barShare, 40] });
  return {
    width: place.clientWidth,
    height,
    cursor: { y: false, points: { show: as === "lines" } },
    legend: { show: true },
    scales: {
      x: { range: (_, least, most) => [least - half(), most + half()] },
      y: { range: (_, _least, most) => [0, Math.max(4, most * 1.1)] },
    },
    axes: [
      { ...axis, size: 26, space: 72, values: (_, splits) => splits.map(timeOf) },
      { ...axis, size: 44, values: (_, splits) => splits.map((at) => count(Math.round(at))) },
    ],
    series: [
      {
        label: "At",
        value: (_, seconds) => (seconds == null ? "–" : clockTime(seconds * 1_000).slice(0, 8)),
      },
      ...shown.current.lines.map(({ name, tone }, index): uPlot.Series => {
        const color = colorOf(place.querySelector(`.chart-tone.${tone}`)!);
        const fill = as === "bars" ? color : withAlpha(color);
        return {
          ...{ label: name, stroke: color, fill, width: as === "bars" ? 0 : 1.5, points: { show: false } },
          ...(as === "bars" && bars && { paths: bars }),
          value: (_, _sum, _series, place) =>
            place == null ? "–" : count(shown.current.lines[index]!.values[place] ?? 0),
        };
      }),
    ],
  };
}

const timeOf = (seconds: number): string => {
  const text = clockTime(seconds * 1_000).slice(0, 8);
  return text.endsWith(":00") ? text.slice(0, 5) : text;
};

/** `rgb(1, 2, 3)` as computed styles have it. */
const withAlpha = (color: string): string => color.replace(/^rgb\((.*)\)$/, `rgba($1, ${groundAlpha})`);

/** Samples that the chart has: half an hour of them, where the page looks every five seconds. */
const samplesMax = 360;

/** How far something was behind, each time that its page looked: `read` is another object after each look. */
export function LagSection({ title, read, lag }: { title: string; read: object; lag: number }) {
  const samples = useRef<{ of: object; point: readonly [at: number, lag: number] }[]>([]);
  const { current } = samples;
  if (current.at(-1)?.of !== read) {
    current.push({ of: read, point: [Date.now(), lag] });
    if (current.length > samplesMax) current.shift();
  }
  const points = current.map(({ point }) => point);
  const most = Math.max(...points.map(([, behind]) => behind));
  return (
    <Section title={title} aside={<span class="faint">since this page was opened</span>}>
      <TimeChart
        as="lines"
        at={points.map(([at]) => at)}
        lines={[{ name: "behind", tone: "lag", values: points.map(([, behind]) => behind) }]}
        said={most === 0 ? "Caught up all the time" : `At most ${count(most)}, now ${count(lag)}`}
      />
    </Section>
  );
}
