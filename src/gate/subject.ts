import type { Operation, Thing, UnaryOperation } from "../kit/operation.ts";
import { typeOfAction, typeOfPath } from "./resource.ts";

/** The resources that an operation acts on, as deny policies see them. */
export interface OperationSubject {
  type: string;
  /** The operation's action, and every other action under which its resources are judged. */
  actions: readonly string[];
  /** Ids of the main resource; `*` when the input names no single one, so the list is never empty. */
  idsOf(input: unknown): readonly string[];
  /** Other resources that the input names. */
  thingsOf(input: unknown): readonly Thing[];
}

/** Input fields that may name the resource; the first one present counts. */
const idFields = [
  "id",
  "function_id",
  "functionId",
  "run_id",
  "runId",
  "step_id",
  "stepId",
  "entity_id",
  "entityId",
  "workerId",
  "bucket",
  "name",
  "event",
  "event_name",
  "topic",
  "pattern",
];

const everything: readonly string[] = ["*"];
const nothing: readonly Thing[] = [];
const isName = (one: string | Thing): one is string => typeof one === "string";
const known = new WeakMap<Operation, OperationSubject>();

function firstRoute(operation: Operation): string | undefined {
  if (operation.mode === "watch") return operation.route;
  const { rest } = operation as UnaryOperation;
  const [first] = Array.isArray(rest) ? rest : [rest];
  return typeof first === "string" ? first : first?.route;
}

function work(operation: Operation): OperationSubject {
  const route = firstRoute(operation);
  const path = route?.slice(route.indexOf(" ") + 1);
  const type = path === undefined ? typeOfAction(operation.action ?? "") : typeOfPath(path);
  const { about, action, alsoAsks = [] } = operation;
  const actions = action === null ? alsoAsks : [action, ...alsoAsks];
  if (about)
    return {
      type,
      actions,
      idsOf(input) {
        const ids = about(input as never).filter(isName);
        return ids.length === 0 ? everything : ids;
      },
      thingsOf: (input) => about(input as never).filter((one): one is Thing => !isName(one)),
    };
  const param = path === undefined ? undefined : /\{(\w+)(?:\.\.\.)?\}/.exec(path)?.[1];
  const fields = param === undefined ? idFields : [param, ...idFields];
  return {
    type,
    actions,
    thingsOf: () => nothing,
    idsOf(input) {
      if (typeof input !== "object" || input === null) return everything;
      for (const field of fields) {
        const value = (input as Record<string, unknown>)[field];
        if (typeof value === "string" && value !== "") return [value];
      }
      return everything;
    },
  };
}

/** Derived from the operation's route, else from its action, and cached by operation. */
export function subjectOf(operation: Operation): OperationSubject {
  let subject = known.get(operation);
  if (!subject) {
    subject = work(operation);
    known.set(operation, subject);
  }
  return subject;
}

const typesKnown = new WeakMap<readonly Operation[], ReadonlySet<string>>();

/** Every resource type of the operations, cached by list. */
export function typesOf(operations: readonly Operation[]): ReadonlySet<string> {
  let types = typesKnown.get(operations);
  if (!types) {
    types = new Set(operations.map((operation) => subjectOf(operation).type));
    typesKnown.set(operations, types);
  }
  return types;
}
