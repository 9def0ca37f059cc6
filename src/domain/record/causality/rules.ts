import { invalid } from "../../../kit/fault.ts";

export const causalKinds = ["event", "run", "step", "message", "delivery", "letter"] as const;
export type CausalKind = (typeof causalKinds)[number];

/** A thing as it is named in requests and answers. */
export interface CausalName {
  kind: CausalKind;
  id: string;
}

export type CausalRelation =
  | "started"
  | "emitted"
  | "appended"
  | "published"
  | "invoked"
  | "took"
  | "brought"
  | "undelivered";

export interface CausalLink {
  cause: CausalName;
  effect: CausalName;
  relation: CausalRelation;
}

export const textOf = ({ kind, id }: CausalName): string => `${kind}:${id}`;

/** Two ids in one: of a step its run's and its own, of a letter its endpoint's and its event's. */
export const pairOf = (first: string, second: string): string => `${first}/${second}`;

export function readPair(id: string): [string, string] {
  const [first = "", ...rest] = id.split("/");
  if (first === "" || rest.length === 0 || rest.join("/") === "")
    throw invalid("id", "must be two ids with a slash between: run/step or endpoint/event");
  return [first, rest.join("/")];
}

export function kindOf(text: string): CausalKind {
  const kind = causalKinds.find((one) => one === text);
  if (!kind) throw invalid("kind", `must be one of ${causalKinds.join(", ")}`);
  return kind;
}

export type CausalDirection = "causes" | "effects";

export function directionsOf(text: string): CausalDirection[] {
  if (text === "" || text === "both") return ["causes", "effects"];
  if (text === "causes" || text === "effects") return [text];
  throw invalid("direction", "must be causes, effects or both");
}

/** 0 and none: the default. */
export function countOf(
  field: string,
  given: number | undefined,
  { fallback, most }: { fallback: number; most: number },
): number {
  if (given === undefined || given === 0) return fallback;
  if (given < 0 || given > most) throw invalid(field, `must be from 1 to ${most}`);
  return given;
}

export function positionOf(id: string): number {
  const position = /^\d{1,16}$/.test(id) ? Number(id) : 0;
  if (position < 1 || !Number.isSafeInteger(position))
    throw invalid("id", "must be the sequence of a message");
  return position;
}
