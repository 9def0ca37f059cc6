import { AsyncLocalStorage } from "node:async_hooks";
import type { Yield } from "./wire.ts";

/** Ends the execution until its step is due. Not an Error: nothing should treat it as one. */
export class Suspended {
  /** Undefined where a run that is undone was not further. */
  readonly yielded: Yield | undefined;
  /** Counts the suspensions of an execution. */
  readonly order: number;
  constructor(yielded: Yield | undefined, order: number) {
    this.yielded = yielded;
    this.order = order;
  }
}

/** Where steps are counted: the run itself, or one branch of a `parallel` or `map`. */
export interface Scope {
  readonly id: string;
  /** Uses of each name so far. */
  readonly used: Map<string, number>;
  readonly parent: Scope | undefined;
  /** Once set, no further step begins here or in its branches. */
  suspended: Suspended | undefined;
}

/** The branches of one execution. Whatever runs inside a branch, awaited or not, belongs to it. */
export interface Scopes {
  current(): Scope;
  /** The step whose work calls; undefined outside of steps. */
  currentStep(): string | undefined;
  /** Runs the work of a step in its scope; without a name, of one that may have steps of its own. */
  inStep<Given, Result>(
    inside: { scope: Scope; step: string | undefined },
    work: (given: Given) => Result,
    given: Given,
  ): Result;
  /** Runs `work` as branch `index` of the parallel `name`. */
  inBranch<Result>(name: string, index: number, work: (scope: Scope) => Promise<Result>): Promise<Result>;
}

const keptPrefixes = /^(?:compensate|publish):/;

/** `a:b\c` reads `a\:b\\c`, so that no name can imitate another's id. */
export function escapeName(name: string): string {
  if (!name.includes(":") && !name.includes("\\")) return name;
  const prefix = keptPrefixes.exec(name)?.[0] ?? "";
  return prefix + name.slice(prefix.length).replaceAll("\\", "\\\\").replaceAll(":", "\\:");
}

const places = new AsyncLocalStorage<{ owner: Scopes; scope: Scope; step: string | undefined }>();

export function createScopes(runId: string): Scopes {
  const root: Scope = { id: runId, used: new Map(), parent: undefined, suspended: undefined };
  // A second parallel of the same name goes on counting where the first one ended.
  const counts = new Map<string, Map<string, number>>();

  const scopes: Scopes = {
    current() {
      const inside = places.getStore();
      return inside?.owner === scopes ? inside.scope : root;
    },
    currentStep() {
      const inside = places.getStore();
      return inside?.owner === scopes ? inside.step : undefined;
    },
    inStep: ({ scope, step }, work, given) => places.run({ owner: scopes, scope, step }, work, given),
    inBranch(name, index, work) {
      const parent = scopes.current();
      const id = `${parent.id}:${escapeName(name)}:${index}`;
      const used = counts.get(id) ?? new Map<string, number>();
      counts.set(id, used);
      const scope: Scope = { id, used, parent, suspended: undefined };
      return places.run({ owner: scopes, scope, step: undefined }, work, scope);
    },
  };
  return scopes;
}

/** The suspension of this scope, or of a scope around it. */
export function suspensionOf(scope: Scope): Suspended | undefined {
  for (let at: Scope | undefined = scope; at; at = at.parent) if (at.suspended) return at.suspended;
  return undefined;
}
