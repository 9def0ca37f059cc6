import type { Chance } from "./faults.ts";

/** What a saga does, in its order; each has a compensation. */
export const deeds = ["reserve", "charge", "ship"] as const;

/**
 * How a saga ends. `cancel` and `timeout` come while it waits; `…-at` while a worker is at the point; `cancel-lost` when the
 * worker is killed already; `cancel-next` when the next worker is about to do the step that the killed one was at.
 */
export const endings = [
  ...(["fatal", "attempts", "wait", "timeout", "cancel"] as const),
  ...(["cancel-at", "timeout-at", "cancel-lost", "cancel-next"] as const),
] as const;
export type Ending = (typeof endings)[number];

export type Victim = "worker" | "server";

export interface SagaCase {
  ending: Ending;
  /** Where a worker says that it is there, and stays, one after the other. The victim is killed at the first. */
  points: readonly string[];
}

/**
 * Around the effect of a step, around the report that brings it, and behind it. At `unsent` the report is not sent, at
 * `unanswered` it is stored, and its answer lost.
 */
const around = (name: string) =>
  ["before", "after", "unsent", "unanswered"].map((moment) => `${name}.${moment}`);
const onTheWay = [
  ...["known.unsent", "known.unanswered"],
  ...deeds.flatMap((what) => [...around(what), `${what}.passed`]),
];
const atTheEnd = ["end.unsent", "end.unanswered"];
const whileUndoing = [
  ...deeds.toReversed().flatMap((what) => around(`undo:${what}`)),
  ...["undone.unsent", "undone.unanswered"],
];

const pointsOf = (ending: Ending, victim: Victim): string[][] => {
  const one = (points: readonly string[]) => points.map((point) => [point]);
  switch (ending) {
    case "cancel-at":
    case "timeout-at":
      return one([...onTheWay, ...atTheEnd]);
    case "cancel-lost":
      return victim === "worker" ? one(onTheWay) : [];
    case "cancel-next":
      return victim === "worker"
        ? ["reserve.before", "reserve.after", "reserve.unsent"].map((point) => [point, "known.unsent"])
        : [];
    default:
      return one([...onTheWay, ...atTheEnd, ...whileUndoing]);
  }
};

export const allCases = (victim: Victim): SagaCase[] =>
  endings.flatMap((ending) => pointsOf(ending, victim).map((points) => ({ ending, points })));

/** Those that break first when something is wrong, each within seconds. */
export const decisiveCases = (victim: Victim): SagaCase[] => {
  const chosen: [Ending, ...string[]][] =
    victim === "worker"
      ? [
          ["fatal", "charge.after"],
          ["attempts", "end.unanswered"],
          ["wait", "undo:charge.after"],
          ["cancel", "undo:reserve.unsent"],
          ["cancel-lost", "known.unsent"],
          ["cancel-lost", "reserve.after"],
          ["cancel-lost", "charge.after"],
          ["cancel-lost", "ship.passed"],
          ["cancel-next", "reserve.after", "known.unsent"],
        ]
      : [
          ["fatal", "charge.unanswered"],
          ["attempts", "undo:charge.unanswered"],
          ["wait", "end.unsent"],
          ["timeout", "undo:ship.after"],
          ["cancel", "undone.unanswered"],
          ["cancel-at", "known.unanswered"],
          ["cancel-at", "charge.after"],
        ];
  return chosen.map(([ending, ...points]) => ({ ending, points }));
};

export function shuffled<Item>(items: readonly Item[], chance: Chance): Item[] {
  const keyed = items.map((item) => ({ item, key: chance() }));
  return keyed.sort((a, b) => a.key - b.key).map(({ item }) => item);
}
