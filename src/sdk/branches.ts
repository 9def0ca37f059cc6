import type { Deviations } from "./deviations.ts";
import { escapeName, type Scope, type Scopes, Suspended } from "./scope.ts";

export interface BranchesHost {
  scopes: Scopes;
  requireGoing(name?: string): void;
  /** Notes that branches run; what it returns notes that they have ended. */
  begin(): () => void;
  readonly deviations?: Pick<Deviations, "cutShort"> | undefined;
}

type Settled = PromiseSettledResult<unknown>;

/**
 * Runs every item as a branch of its own until each has ended or yielded. A suspended branch keeps its place among the
 * `concurrency`. Throws the last suspension, when there is one; with `failFast` rather the first error.
 */
export async function runBranches(
  host: BranchesHost,
  name: string,
  works: readonly (() => unknown)[],
  { failFast, concurrency }: { failFast: boolean; concurrency: number },
): Promise<Settled[]> {
  if (typeof name !== "string" || name === "") throw new TypeError("parallel and map need a name");
  if (!(concurrency >= 1)) throw new TypeError(`${name}: concurrency must be at least 1`);
  host.requireGoing(name);
  const parent = host.scopes.current();
  const end = host.begin();
  const settled: Settled[] = new Array(works.length);
  let next = 0;
  let failed: { reason: unknown } | undefined;
  let last: Suspended | undefined;

  async function branch(at: number): Promise<void> {
    try {
      const value = await host.scopes.inBranch(name, at, (scope) => ofScope(scope, works[at]!));
      settled[at] = { status: "fulfilled", value };
    } catch (reason) {
      settled[at] = { status: "rejected", reason };
      if (!(reason instanceof Suspended)) failed ??= { reason };
      else if (last === undefined || reason.order > last.order) last = reason;
    }
  }

  /** Runs branch after branch, until one is suspended; there are `concurrency` lanes. */
  async function lane(): Promise<void> {
    while (next < works.length && !(failFast && failed)) {
      const at = next++;
      await branch(at);
      const result = settled[at];
      if (result?.status === "rejected" && result.reason instanceof Suspended) return;
    }
  }

  try {
    await Promise.all(Array.from({ length: Math.min(concurrency, works.length) }, lane));
  } finally {
    end();
  }
  if (next < works.length) host.deviations?.cutShort(`${parent.id}:${escapeName(name)}:`);
  if (failFast && failed) throw failed.reason;
  if (last) {
    parent.suspended = last;
    throw last;
  }
  // A branch may have caught, and not rethrown, what ended the execution.
  host.requireGoing();
  return settled;
}

/** The result of a branch; one that caught its suspension, or made an error of it, is suspended all the same. */
async function ofScope(scope: Scope, work: () => unknown): Promise<unknown> {
  try {
    const value = await work();
    if (scope.suspended) throw scope.suspended;
    return value;
  } catch (error) {
    throw scope.suspended ?? error;
  }
}
