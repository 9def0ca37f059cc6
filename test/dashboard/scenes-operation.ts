import { sql } from "../../src/kit/sql.ts";
import { good, type Scene, type Stage, says } from "./scenes.ts";
import { platformSessionOf } from "./visit.ts";

const userOf = (word: string) => ({
  email: `${word}@example.test`,
  password: "correct horse battery staple",
});

/** As the user of the platform, who sees all tenants. */
const asPlatform = async ({ server }: Stage) => ({
  key: await platformSessionOf(server),
  headers: { "x-svc-org": "org_default" },
});

/** What operators look at: who may do what, what was tried in vain, and how the installation is. */
export const operationScenes: readonly Scene[] = [
  {
    path: "dead-letters",
    isStill: true,
    async make({ server, page, word }) {
      const { eventId } = good(await server.rpc("SvcService", "Emit", { event: word }));
      // The bus of a test is never away for as long as the attempts last.
      await server.running.domain.store.write((write) =>
        write.run(sql`INSERT INTO outbox (environment_id, id, event_id, topic, kind, payload, metadata, created_at,
            attempts, due_at, dead_at, last_error)
          VALUES (${server.env}, ${`ob_${word}`}, ${eventId}, ${`events:${word}`}, 'mirror', '{}', '{}', 1, 9, 1, 2,
            'the bus is away')`),
      );
      return page.getByRole("row").filter({ hasText: word });
    },
    async act({ hands, page, word }) {
      const row = page.getByRole("row").filter({ hasText: word });
      await hands.press(row.getByRole("button", { name: "Try again" }));
      await row.waitFor({ state: "detached" });
    },
    found: async ({ server, word }) =>
      !says(await server.api("/api/v1/outbox/dead-letter", { environment: server.env }), word),
  },
  {
    path: "quotas",
    isStill: true,
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
  {
    path: "access",
    isStill: true,
    async make({ server, page, word }) {
      good(await server.api("/api/v1/users", { body: { ...userOf(word), roles: ["viewer"] } }));
      return page.getByRole("row").filter({ hasText: userOf(word).email });
    },
    async act({ hands, page, button, field, word }) {
      const typed = userOf(`${word}-typed`);
      await hands.press(button("New user…"));
      await hands.fill(field("Email"), typed.email);
      await hands.fill(field("Password"), typed.password);
      await hands.press(page.getByRole("dialog").getByLabel("viewer", { exact: true }));
      await hands.press(button("Make"));
      await page.getByRole("row").filter({ hasText: typed.email }).getByText("viewer").waitFor();
    },
    found: async ({ server, word }) => says(await server.api("/api/v1/users"), `${word}-typed`),
  },
  {
    path: "policies",
    isStill: true,
    async make({ server, link, word }) {
      const deny = { effect: "deny", actions: "events:emit", resources: `irn:svc:*:*:event:*:${word}.*` };
      good(await server.api("/api/v1/policies", { body: { name: word, ...deny } }));
      return link(word);
    },
    async act({ hands, page, button, field, word }) {
      await hands.press(button("New policy…"));
      await hands.fill(field("Name"), `${word}-typed`);
      await hands.fill(field("Actions"), "events:emit");
      await hands.fill(field("Resources"), `irn:svc:*:*:event:*:${word}.*`);
      await hands.press(button("Make"));
      await page.getByRole("heading", { name: `${word}-typed` }).waitFor();
    },
    found: async ({ server, word }) => says(await server.api("/api/v1/policies"), `${word}-typed`),
  },
  {
    path: "audit",
    isStill: true,
    async make({ server, page, word }) {
      good(
        await server.api("/api/v1/secrets", { body: { name: `${word.toUpperCase()}_AUDIT`, value: "x" } }),
      );
      return page
        .getByRole("listitem")
        .filter({ hasText: `${word.toUpperCase()}_AUDIT` })
        .first();
    },
    async act({ hands, page, button }) {
      await hands.press(button("Verify the chain"));
      await page.getByText(/rows are what was written/).waitFor();
    },
    found: async ({ server }) => good(await server.api("/api/v1/audit/verify")).valid,
  },
  {
    path: "tenants",
    area: "platform",
    isStill: true,
    async make(stage) {
      const body = { org_name: stage.word };
      good(await stage.server.api("/api/v1/tenants/provision", { ...(await asPlatform(stage)), body }));
      return stage.page.getByRole("row").filter({ hasText: stage.word });
    },
    async act({ hands, page, button, field, word }) {
      await hands.press(button("New tenant…"));
      await hands.fill(field("Name"), `${word}-typed`);
      await hands.press(button("Make"));
      await hands.press(button("I have kept it"));
      await page
        .getByRole("row")
        .filter({ hasText: `${word}-typed` })
        .waitFor();
    },
    found: async (stage) =>
      says(await stage.server.api("/api/v1/tenants", await asPlatform(stage)), `${stage.word}-typed`),
  },
  {
    path: "capacity",
    area: "platform",
    isStill: true,
    async make({ server, page, word }) {
      const made = { id: word, triggers: [{ event: word }] };
      good(await server.rpc("SvcService", "RegisterFunction", made));
      good(await server.rpc("SvcService", "Emit", { event: word }));
      return page.getByText(word).first();
    },
    async act({ hands, page, link }) {
      await hands.press(link("Queue"));
      await page.getByRole("columnheader", { name: "Waits for" }).waitFor();
    },
    found: async (stage) =>
      says(await stage.server.api("/api/v1/capacity/queue", await asPlatform(stage)), stage.word),
  },
];
