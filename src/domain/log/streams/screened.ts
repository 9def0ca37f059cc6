import { screenOfKinds, thingsOf, thingsOfEvent } from "../../../gate/things.ts";
import type { Call } from "../../../kit/operation.ts";
import type { HistoryPage, StreamPage } from "./service.ts";

/** Throws the refusal of an event of the page: folding a stream takes all events, so none is left out. */
export async function requireReadable({ events }: StreamPage, call: Pick<Call, "screen">): Promise<void> {
  const screen = await screenOfKinds(call, "event");
  for (const event of screen ? events : []) {
    const refused = await screen!.refusalOf(thingsOfEvent(event));
    if (refused) throw refused;
  }
}

/** Leaves out the events and the runs that deny policies keep from the caller. */
export async function withoutHidden(page: HistoryPage, call: Pick<Call, "screen">): Promise<HistoryPage> {
  const screen = await screenOfKinds(call, "event", "run");
  if (!screen) return page;
  const entries = [];
  for (const { event, runs } of page.entries) {
    if (await screen.refusalOf(thingsOfEvent(event))) continue;
    const allowed = [];
    for (const run of runs) if (!(await screen.refusalOf(thingsOf("run", run.id)))) allowed.push(run);
    entries.push({ event, runs: allowed });
  }
  return { ...page, entries };
}
