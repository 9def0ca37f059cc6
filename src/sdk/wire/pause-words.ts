/** By the reason of a pause: what a list says of such a run, and what a filter takes beside `paused`. */
export const pauseWords = {
  sleep: "sleeping",
  wait_event: "waiting_for_event",
  invoke: "waiting_for_child",
  injection: "held",
  deployment_gone: "deployment_gone",
} as const;

export type PauseWord = (typeof pauseWords)[keyof typeof pauseWords];

/** Of a status or a reason that this program does not know, the status. */
export const runWord = (status: string, pauseReason = ""): string =>
  (status === "paused" && (pauseWords as Readonly<Record<string, PauseWord>>)[pauseReason]) || status;
