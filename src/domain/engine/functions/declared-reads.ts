import type { Thing } from "../../../kit/operation.ts";

/**
 * The caller who registers a function must be allowed to read the secrets it declares: its runs get their
 * values.
 */
const secretThing = (id: string): Thing => ({ type: "secret", id, action: "secrets:read" });
/**
 * Likewise the events that start it: its runs get their data. A pattern asks for all events that it matches.
 */
const eventThings = ({ event }: TriggerInput): Thing[] =>
  event
    ? [event, `events:${event}`].map((name) => ({
        type: "event",
        id: name.replace(/>$/, "*"),
        isPattern: /[*>]/.test(event),
        action: "events:subscribe",
      }))
    : [];
interface TriggerInput {
  event?: string | undefined;
}
/** What a definition lets its runs read. */
export interface DeclaredReads {
  secrets?: readonly string[];
  triggers?: readonly TriggerInput[];
}
export const readThings = ({ secrets = [], triggers = [] }: DeclaredReads): Thing[] => [
  ...secrets.map(secretThing),
  ...triggers.flatMap(eventThings),
];
/** Actions that `readThings` asks for besides the operation's own. */
export const alsoAsks = ["secrets:read", "events:subscribe"];
