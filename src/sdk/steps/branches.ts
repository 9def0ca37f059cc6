import type { Deviations } from "./deviations.ts";
import { escapeName, type Scope, type Scopes } from "./scope.ts";

export interface BranchesHost {
  scopes: Scopes;
  requireGoing(): void;
  /** Something is waited for in this branch. */
  isWaiting(branch: Scope): boolean;
  /** The last result of all branches counts for what comes after them. */
  joined(parent: Scope): void;
  /** Resolves when nothing computes, the handler rests, and the check holds. */
  whenResting(check: () => boolean): Promise<void>;
  readonly deviations?: Pick<Deviations, "cutShort"> | undefined;
}

type Settled = PromiseSettledResult<unknown>;

/**
 * Runs every item as a branch of its own. A branch that waits keeps its place among the `concurrency`. With
 * `failFast` throws the first error, once the others have ended or wait.
 */
export async function runBranches(
  host: BranchesHost,
  name: string,
  works: readonly (() => unknown)[],
  { failFast, concurrency }: { failFast: boolean; concurrency: number },
): Promise<Settled[]> {
  if (typeof name !== "string" || name === "") throw new TypeError("parallel and map need a name");
  if (!(concurrency >= 1)) throw new TypeError(`${name}: concurrency must be at least 1`);
  host.requireGoing();
  const parent = host.scopes.current();
  const settled: Settled[] = new Array(works.length);
  const running = new Set<Scope>();
  let next = 0;
  let failed: { reason: unknown } | undefined;

  async function branch(at: number, scope: Scope): Promise<void> {
    running.add(scope);
    try {
      settled[at] = { status: "fulfilled", value: await works[at]!() };
    } catch (reason) {
      settled[at] = { status: "rejected", reason };
      failed ??= { reason };
    }
    running.delete(scope);
  }

  /** Runs branch after branch; there are `concurrency` lanes. */
  async function lane(): Promise<void> {
    while (next < works.length && !(failFast && failed)) {
      const at = next++;
      await host.scopes.inBranch(name, at, (scope) => branch(at, scope));
    }
  }

  const all = Promise.all(Array.from({ length: Math.min(concurrency, works.length) }, lane));
  const othersWait = () => (failed !== undefined || running.size === 0) && [...running].every(host.isWaiting);
  await (failFast && works.length > 0 ? Promise.race([all, host.whenResting(othersWait)]) : all);
  host.joined(parent);
  if (next < works.length) host.deviations?.cutShort(`${parent.id}:${escapeName(name)}:`);
  if (failFast && failed) throw failed.reason;
  return settled;
}
