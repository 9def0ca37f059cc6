import type { Clock, Instant } from "../kit/clock.ts";
import { nodesWithout } from "../kit/node-facts.ts";
import { sql } from "../kit/sql.ts";
import type { Store } from "../store/store.ts";

const keptMs = 2_000;

/**
 * Whether all listed nodes say a fact of themselves; a silent node is listed for an hour. A file has one
 * node. The answer is kept for two seconds. False if unreadable: what only new nodes know is then left alone.
 */
export function everyNodeSays(
  fact: string,
  { store, clock }: { store: Store; clock: Pick<Clock, "now"> },
): () => Promise<boolean> {
  let kept: { at: Instant; answer: Promise<boolean> } | undefined;
  const ask = async () => (await store.one(sql`${nodesWithout(fact)} LIMIT 1`)) === undefined;
  return () => {
    if (!store.isShared) return Promise.resolve(true);
    const now = clock.now();
    if (kept === undefined || now - kept.at >= keptMs) {
      const answer = ask().catch(() => {
        kept = undefined;
        return false;
      });
      kept = { at: now, answer };
    }
    return kept.answer;
  };
}
