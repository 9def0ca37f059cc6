import { AsyncLocalStorage } from "node:async_hooks";

/** Where steps are counted: the run itself, or one branch of a `parallel` or `map`. */
export interface Scope {
  readonly id: string;
  /** Uses of each name so far. */
  readonly used: Map<string, number>;
  readonly parent: Scope | undefined;
  /** The last step finished by others whose result was handed over here; at first the outer scope's. */
  lastMet: string | undefined;
}

/** The branches of one execution. Whatever runs inside a branch, awaited or not, belongs to it. */
export interface Scopes {
  current(): Scope;
  /** The step whose work calls; undefined outside of steps. */
  currentStep(): string | undefined;
  /** The try of a step whose work calls: its id, and its number in this execution. Undefined outside. */
  currentTry(): { stepId: string; entry: number } | undefined;
  /** Whether what calls belongs to what is undone, and not to the handler. */
  isUndoing(): boolean;
  /** Runs the work of a step in its scope; without a name, of one that may have steps of its own. */
  inStep<Given, Result>(
    inside: { scope: Scope; step: string | undefined; stepId: string; isUndoing: boolean },
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

interface BranchPlace {
  owner: Scopes;
  scope: Scope;
  step: string | undefined;
  try?: { stepId: string; entry: number };
  isUndoing: boolean;
}

const places = new AsyncLocalStorage<BranchPlace>();

export function createScopes(runId: string): Scopes {
  const root: Scope = { id: runId, used: new Map(), parent: undefined, lastMet: undefined };
  // A second parallel of the same name counts on from where the first one ended.
  const counts = new Map<string, Map<string, number>>();

  let tries = 0;

  function place(): BranchPlace | undefined {
    const inside = places.getStore();
    return inside?.owner === scopes ? inside : undefined;
  }

  const scopes: Scopes = {
    current: () => place()?.scope ?? root,
    currentStep: () => place()?.step,
    currentTry: () => place()?.try,
    isUndoing: () => place()?.isUndoing ?? false,
    inStep: ({ stepId, ...inside }, work, given) =>
      places.run({ owner: scopes, ...inside, try: { stepId, entry: ++tries } }, work, given),
    inBranch(name, index, work) {
      const parent = scopes.current();
      const id = `${parent.id}:${escapeName(name)}:${index}`;
      const used = counts.get(id) ?? new Map<string, number>();
      counts.set(id, used);
      const scope: Scope = { id, used, parent, lastMet: parent.lastMet };
      const isUndoing = scopes.isUndoing();
      return places.run({ owner: scopes, scope, step: undefined, isUndoing }, work, scope);
    },
  };
  return scopes;
}
