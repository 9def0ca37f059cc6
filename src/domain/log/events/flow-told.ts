import type { Watch } from "../../../kit/watch.ts";
import { noticesOf } from "./answers.ts";
import type { EmittedRow } from "./flush.ts";
import type { ReservedEvent } from "./prepare.ts";

/** Takes the skipped runs out of a committed flush, and counts what flow control did to its events. */
export function openFlowTold({ metrics }: Pick<Watch, "metrics">) {
  const count = metrics.counter({
    name: "svc_flow_notices_total",
    help: "Starts that flow control did not let be, by the option of the function and what it did.",
    labels: ["option", "outcome"],
  });
  return (events: readonly ReservedEvent[], logged: readonly EmittedRow[]): void => {
    for (const { ord, skipped } of logged) {
      const event = events[ord - 1]!;
      if (skipped && skipped.length > 0) dropSkipped(event, skipped);
      for (const { option, outcome } of noticesOf(event) ?? []) count(option, outcome).add(1);
    }
  };
}

/** Leaves out the runs that a gate skipped, and keeps what is told of them. */
function dropSkipped(event: ReservedEvent, skipped: readonly string[]): void {
  const { runs } = event;
  event.runs = runs.filter(({ id }) => !skipped.includes(id));
  event.skips = runs.flatMap(({ id, functionId, gate }) =>
    gate && skipped.includes(id)
      ? { functionId, option: gate.option, outcome: "skipped", message: gate.message }
      : [],
  );
}
