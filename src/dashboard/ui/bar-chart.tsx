import { count, plain } from "../lib/format.ts";

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
