import { actionsThatShow, allThingsOf, namesOfEvent, thingsOf } from "../../../gate/things.ts";
import type { Thing } from "../../../kit/operation.ts";

/** A pattern asks for all events that it matches. */
const eventThings = ({ event = "" }: TriggerInput): Thing[] => {
  if (event === "") return [];
  const names = namesOfEvent(event.replace(/>$/, "*"));
  return /[*>]/.test(event) ? allThingsOf("event", ...names) : thingsOf("event", ...names);
};

interface TriggerInput {
  event?: string | undefined;
}
/** What a definition lets its runs read. */
export interface DeclaredReads {
  secrets?: readonly string[];
  triggers?: readonly TriggerInput[];
  cancelOn?: readonly TriggerInput[];
  /** Of a function in push mode: its jobs go there, and no worker's credential is asked about them. */
  endpointUrl?: string | undefined;
}

/**
 * The caller who registers a function must be allowed to read the secrets it declares and the events that
 * start it: its runs get their values. Which of them end by an event tells what the event holds. Those that
 * are sent to an endpoint may be of any stream.
 */
export const readThings = ({ secrets = [], triggers = [], cancelOn = [], endpointUrl }: DeclaredReads) => [
  ...thingsOf("secret", ...secrets),
  ...[...triggers, ...cancelOn].flatMap(eventThings),
  ...(endpointUrl ? allThingsOf("stream") : []),
];

/** Actions that `readThings` asks for besides the operation's own. */
export const alsoAsks = actionsThatShow("secret", "event", "stream");
