import type { Watch } from "../../../kit/watch.ts";
import { noticesOf } from "./answers.ts";
import type { EmittedRow } from "./flush.ts";
import type { ReservedEvent } from "./prepare.ts";

/** Removes the runs that a gate skipped from a committed flush's events, and keeps what is said of them. */
export function dropSkipped(events: readonly ReservedEvent[], logged: readonly EmittedRow[]): void {
  for (const { ord, skipped } of logged) {
    if (!skipped || skipped.length === 0) continue;
    const event = events[ord - 1]!;
    const { runs } = event;
    event.runs = runs.filter(({ id }) => !skipped.includes(id));
    event.skips = runs.flatMap(({ id, functionId, gate }) =>
      gate && skipped.includes(id)
        ? { functionId, option: gate.option, outcome: "skipped", message: gate.message }
        : [],
    );
  }
}

/** Counts what flow control did to the events of a committed flush; skipped runs are dropped before. */
export function openNoticeCount({ metrics }: Pick<Watch, "metrics">) {
  const count = metrics.counter({
    name: "svc_flow_notices_total",
    help: "Starts that flow control did not let be, by the option of the function and what it did.",
    labels: ["option", "outcome"],
  });
  return (events: readonly ReservedEvent[], logged: readonly EmittedRow[]): void => {
    for (const { ord } of logged)
      for (const { option, outcome } of noticesOf(events[ord - 1]!) ?? []) count(option, outcome).add(1);
  };
}
