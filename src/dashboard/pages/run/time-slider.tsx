import { clockTime, duration } from "../../lib/format.ts";
import type { Moment, RunView } from "../../lib/runs.ts";
import { Button, Text } from "../../ui/basics.tsx";

/** One place of the slider: an instant at which something happened, and the last thing that did. */
interface Stop {
  at: number;
  moment: Moment;
}

export function stopsOf(moments: readonly Moment[]): Stop[] {
  const byInstant = new Map<number, Moment>();
  for (const moment of moments) byInstant.set(moment.at, moment);
  return [...byInstant].sort(([one], [other]) => one - other).map(([at, moment]) => ({ at, moment }));
}

/** Moves through the run's history. `at` is undefined for now. */
export function TimeSlider(props: {
  run: RunView;
  moments: readonly Moment[];
  at: number | undefined;
  onMove: (at: number | undefined) => void;
}) {
  const { run, moments, at, onMove } = props;
  const stops = stopsOf(moments);
  if (stops.length < 2) return null;
  const last = at === undefined ? stops.length : stops.findLastIndex((stop) => stop.at <= at);
  const place = Math.max(0, last);
  const shown = at === undefined ? undefined : stops[place];
  return (
    <div class={`time ${shown ? "past" : ""}`}>
      <label class="time-label" for="time-slider">
        Time
      </label>
      <input
        id="time-slider"
        type="range"
        min={0}
        max={stops.length}
        value={place}
        aria-valuetext={shown ? `${clockTime(shown.at)}, ${shown.moment.summary}` : "now"}
        onInput={({ currentTarget }) => onMove(stops[currentTarget.valueAsNumber]?.at)}
      />
      <output class="time-shown" for="time-slider">
        {shown ? (
          <>
            <strong class="number">{clockTime(shown.at)}</strong>
            <span class="number">{`+${duration(shown.at - run.createdAt)}`}</span>
            <Text of={shown.moment.summary} />
          </>
        ) : (
          "Now"
        )}
      </output>
      {shown && <Button kind="quiet" text="Back to now" onClick={() => onMove(undefined)} />}
    </div>
  );
}
