import { count } from "../lib/format.ts";

const replays = [100, 1_000];
/** How much of the past a tail shows at first. */
export const firstReplay = replays[0]!;

/** How many of the newest come before what comes. */
export function ReplayChoice({ value, onChange }: { value: number; onChange: (value: number) => void }) {
  return (
    <label class="sql-most">
      {"Newest "}
      <select value={`${value}`} onChange={({ currentTarget }) => onChange(Number(currentTarget.value))}>
        {replays.map((many) => (
          <option key={many} value={`${many}`}>
            {count(many)}
          </option>
        ))}
      </select>
      {" and what comes"}
    </label>
  );
}
