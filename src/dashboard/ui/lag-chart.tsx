import { useRef } from "preact/hooks";
import { count } from "../lib/format.ts";
import { Section } from "./basics.tsx";
import { TimeChart } from "./time-chart.tsx";

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
