import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { type BranchesHost, runBranches } from "./branches.ts";
import type { Branch, MapOptions, ParallelOptions, Steps } from "./steps.ts";

const knownOfParallel: KnownOptions<ParallelOptions> = { allSettled: true };
const knownOfMap: KnownOptions<MapOptions> = { concurrency: true, ...knownOfParallel };

/** The steps that have steps of their own: `steps` gives what the branches of `parallel` are called with. */
export function branchSteps(host: BranchesHost, steps: () => Steps): Pick<Steps, "parallel" | "map"> {
  return {
    async parallel(name: string, branches: object, options: ParallelOptions = {}) {
      requireKnown(`step ${name}`, options, knownOfParallel);
      const { allSettled = false } = options;
      const names = Array.isArray(branches) ? undefined : Object.keys(branches);
      const works = Object.values(branches as Record<string, Branch>).map((branch) => () => branch(steps()));
      const settled = await runBranches(host, name, works, {
        failFast: !allSettled,
        concurrency: Number.POSITIVE_INFINITY,
      });
      const results = settledOrResults(settled, allSettled);
      return (
        names ? Object.fromEntries(names.map((branch, at) => [branch, results[at]])) : results
      ) as never;
    },

    async map(
      name: string,
      items: readonly unknown[],
      work: (item: never, index: number) => unknown,
      options: MapOptions = {},
    ) {
      requireKnown(`step ${name}`, options, knownOfMap);
      const { concurrency = Number.POSITIVE_INFINITY, allSettled = false } = options;
      const works = items.map((item, at) => () => work(item as never, at));
      const settled = await runBranches(host, name, works, { failFast: !allSettled, concurrency });
      return settledOrResults(settled, allSettled) as never;
    },
  };
}

function settledOrResults(settled: PromiseSettledResult<unknown>[], allSettled: boolean): unknown[] {
  return allSettled ? settled : settled.map((one) => (one as PromiseFulfilledResult<unknown>).value);
}
