import { count, plain } from "../lib/format.ts";

const height = 96;
const width = 600;

/** A value over time, as a line with the ground under it. `said` is the same in words. */
export function LineChart(props: {
  points: readonly (readonly [at: number, value: number])[];
  said: string;
  from: string;
  to: string;
}) {
  const { points, said, from, to } = props;
  const first = points[0]?.[0] ?? 0;
  const span = Math.max(1, (points.at(-1)?.[0] ?? 1) - first);
  const most = Math.max(1, ...points.map(([, value]) => value));
  const at = ([time, value]: readonly [number, number]) =>
    `${(((time - first) / span) * width).toFixed(1)} ${(height - 2 - (value / most) * (height - 8)).toFixed(1)}`;
  // One look alone is a line, too.
  const line = points.length === 1 ? `${at(points[0]!)}H${width}` : points.map(at).join("L");
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={said}>
        {points.length > 0 && (
          <>
            <path class="line-ground" d={`M0 ${height}L${line}L${width} ${height}Z`} />
            <path class="line-itself" d={`M${line}`} />
          </>
        )}
      </svg>
      <figcaption>
        <span>{from}</span>
        <span>{said}</span>
        <span>{to}</span>
      </figcaption>
    </figure>
  );
}

/** Values beside each other, each with its name; those below zero stand as none. */
export function BarChart(props: {
  bars: readonly { name: string; value: number }[];
  /** What the values are. */
  what: string;
}) {
  const { bars, what } = props;
  const most = Math.max(0, ...bars.map(({ value }) => value)) || 1;
  return (
    <table class="bars">
      <caption class="visually-hidden">{plain(what)}</caption>
      <tbody>
        {bars.map(({ name, value }, index) => (
          <tr key={index}>
            <th scope="row">
              <bdi>{plain(name)}</bdi>
            </th>
            <td>
              <span class="bar-of" style={{ width: `${(Math.max(0, value) / most) * 100}%` }} />
            </td>
            <td class="number">{count(value)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
