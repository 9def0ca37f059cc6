import { expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { startTestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/** A node that dies right after the commit of a deletion: what it would have written then is not written. */
function dyingAfterDeletion() {
  let dead = false;
  const around = (store: Store): Store => ({
    ...store,
    async write(work) {
      if (dead) throw new Error("the node is dead");
      let deletes = false;
      const done = await store.write((session) =>
        work({
          ...session,
          run(query) {
            deletes ||= query.strings.join("").includes("DELETE FROM functions");
            return session.run(query);
          },
        }),
      );
      dead ||= deletes;
      return done;
    },
  });
  const revive = () => {
    dead = false;
  };
  return { around, revive, isDead: () => dead };
}

// On libSQL one write is done before the next begins.
test("a function that is deleted leaves nothing queued behind it, though its node dies at the commit", async () => {
  const node = dyingAfterDeletion();
  const server = await startTestServer({ engine: "postgres", aroundStore: node.around });
  const foreign = new Bun.SQL(server.home.place.databaseUrl!, { max: 2 });
  const waiting = (count: number) =>
    until(
      async () => {
        const [row] = await foreign`SELECT count(*)::int AS count FROM pg_stat_activity
          WHERE datname = current_database() AND wait_event_type = 'Lock'`;
        return row.count >= count;
      },
      { about: `${count} who wait for the head` },
    );
  try {
    const definition = { id: "doomed", triggers: [{ event: "a.b" }] };
    const registered = await server.rpc("SvcService", "RegisterFunction", definition);
    expect(registered.status, JSON.stringify(registered.body)).toBe(200);
    const blocker = await foreign.reserve();
    await blocker`BEGIN`;
    await blocker`SELECT 1 FROM heads WHERE environment_id = ${server.env} FOR UPDATE`;
    // The event comes first to the head; the deletion has looked at the queue by the time that it comes second.
    const emitted = server.rpc("SvcService", "Emit", { event: "a.b" });
    await waiting(1);
    const deleted = server.rpc("SvcService", "DeleteFunction", { id: "doomed" });
    await waiting(2);
    await blocker`COMMIT`;
    blocker.release();
    expect((await emitted).status).toBe(200);
    await deleted;
    expect(node.isDead()).toBe(true);
    node.revive();
    const left = await server.running.domain.store.all(
      sql`SELECT run_id FROM executions WHERE environment_id = ${server.env} AND function_id = 'doomed'`,
    );
    expect(left).toEqual([]);
  } finally {
    node.revive();
    await foreign.close();
    await server.stop();
  }
});
