import { sql } from "../../src/kit/sql.ts";
import { until } from "../support/until.ts";
import { good, type Scene, says } from "./scenes.ts";

/** What operators look at: what was tried in vain, what may be used, and how the installation is. */
export const operationScenes: readonly Scene[] = [
  {
    path: "dead-letters",
    async awaits({ server, word }) {
      const { eventId } = good(await server.rpc("SvcService", "Emit", { event: word }));
      // The bus of a test is never away for as long as the attempts last: the relay takes it for the last one.
      await server.running.domain.store.write((write) =>
        write.run(sql`INSERT INTO outbox (environment_id, id, event_id, topic, kind, payload, metadata, created_at,
            attempts, due_at)
          VALUES (${server.env}, ${`ob_${word}`}, ${eventId}, ${`events:${word}`}, 'mirror', '{}', '{}', 1, 1000, 1)`),
      );
      const dead = () => server.api("/api/v1/outbox/dead-letter", { environment: server.env });
      await until(async () => says(await dead(), word), { about: "the relay to give up" });
    },
    make: async ({ page, word }) => page.getByRole("row").filter({ hasText: word }),
    async act({ hands, page, word }) {
      const row = page.getByRole("row").filter({ hasText: word });
      await hands.press(row.getByRole("button", { name: "Try again" }));
      await row.waitFor({ state: "detached" });
    },
    found: async ({ server, word }) =>
      !says(await server.api("/api/v1/outbox/dead-letter", { environment: server.env }), word),
  },
  {
    path: "alerts",
    async make({ server, word, page }) {
      const targets = [{ type: "webhook", url: "https://ops.example.test/" }];
      good(
        await server.rpc("AlertService", "PutAlertRule", { name: word, condition: "dead_letter", targets }),
      );
      return page.getByRole("rowheader").filter({ hasText: word }).first();
    },
    async act({ hands, page, button, field, word }) {
      await hands.press(button("New rule…"));
      await hands.fill(field("Name"), `${word}-typed`);
      await hands.fill(field("Tells"), "email ops@example.test");
      await hands.press(button("Save"));
      await page
        .getByRole("rowheader")
        .filter({ hasText: `${word}-typed` })
        .first()
        .waitFor();
    },
    found: async ({ server, word }) =>
      says(await server.rpc("AlertService", "ListAlertRules", {}), `${word}-typed`),
  },
  {
    path: "quotas",
    async make({ server, page }) {
      const path = `/api/v1/environments/${server.env}/quotas`;
      good(await server.api(path, { method: "PUT", body: { concurrent_runs: 7_654 } }));
      return page.getByRole("cell", { name: "7,654", exact: true }).first();
    },
    async act({ hands, page, button, field }) {
      await hands.press(button("Set limits…"));
      await hands.fill(field("Runs that are not over"), "8765");
      await hands.press(button("Set"));
      await page.getByRole("cell", { name: "8,765", exact: true }).first().waitFor();
    },
    found: async ({ server }) => says(await server.api(`/api/v1/environments/${server.env}/quotas`), "8765"),
  },
  {
    path: "usage",
    async act({ hands, page, link }) {
      await hands.press(link("By function"));
      await page.getByRole("link", { name: "By function" }).and(page.locator("[aria-current]")).waitFor();
    },
    found: async ({ server }) => says(await server.api("/api/v1/usage?group_by=function"), "total"),
  },
  {
    path: "cluster",
    async act({ page }) {
      await page.getByRole("table", { name: "Nodes" }).getByRole("row").nth(1).waitFor();
    },
    found: async ({ server }) => says(await server.api("/api/v1/cluster/health"), "nodes"),
  },
  {
    path: "integrity",
    async act({ page }) {
      await page.getByRole("table", { name: "Checks" }).getByRole("row").nth(1).waitFor();
    },
    found: async ({ server }) => says(await server.api("/api/v1/integrity"), "checks"),
  },
];
