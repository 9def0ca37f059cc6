import { good, type Scene, type Stage, says } from "./scenes.ts";
import { userOf } from "./scenes-access.ts";

/** As the user of the platform in a tenant's org. */
const inOrg = ({ session }: Stage) => ({ key: session, headers: { "x-svc-org": "org_default" } });

/** The same at home, where what is asked is the platform's own. */
const atHome = ({ session }: Stage) => ({ key: session });

const area = "platform" as const;
const deny = (word: string) => ({
  ...{ effect: "deny", actions: "platform:tenants:manage" },
  resources: `irn:svc:*:*:tenants:*:${word}`,
});

/** What users of the platform see at home. */
export const platformScenes: readonly Scene[] = [
  {
    path: "tenants",
    area,
    async make(stage) {
      const body = { org_name: stage.word };
      good(await stage.server.api("/api/v1/tenants/provision", { ...inOrg(stage), body }));
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
      says(await stage.server.api("/api/v1/tenants", inOrg(stage)), `${stage.word}-typed`),
  },
  {
    path: "capacity",
    area,
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
    found: async (stage) => says(await stage.server.api("/api/v1/capacity/queue", inOrg(stage)), stage.word),
  },
  {
    path: "cluster",
    area,
    async act({ page }) {
      await page.getByRole("table", { name: "Nodes" }).getByRole("row").nth(1).waitFor();
    },
    found: async (stage) => says(await stage.server.api("/api/v1/cluster/health", atHome(stage)), "nodes"),
  },
  {
    path: "access",
    area,
    async make(stage) {
      const user = userOf(stage.word);
      const body = { ...user, name: stage.word, role_ids: ["role_platform_viewer"] };
      good(await stage.server.api("/api/v1/platform/users", { ...atHome(stage), body }));
      return stage.page.getByRole("row").filter({ hasText: user.email });
    },
    async act({ hands, page, button, field, word }) {
      const typed = userOf(`${word}-typed`);
      await hands.press(button("New user…"));
      await hands.fill(field("Email"), typed.email);
      await hands.fill(field("Name"), word);
      await hands.fill(field("Password"), typed.password);
      await hands.press(page.getByRole("dialog").getByLabel("platform_viewer", { exact: true }));
      await hands.press(button("Make"));
      await page.getByRole("row").filter({ hasText: typed.email }).waitFor();
    },
    found: async (stage) =>
      says(await stage.server.api("/api/v1/platform/users", atHome(stage)), `${stage.word}-typed`),
  },
  {
    path: "policies",
    area,
    async make(stage) {
      const body = { name: stage.word, ...deny(stage.word) };
      good(await stage.server.api("/api/v1/platform/policies", { ...atHome(stage), body }));
      return stage.link(stage.word);
    },
    async act({ hands, page, button, field, word }) {
      const { actions, resources } = deny(word);
      await hands.press(button("New policy…"));
      await hands.fill(field("Name"), `${word}-typed`);
      await hands.fill(field("Actions"), actions);
      await hands.fill(field("Resources"), resources);
      await hands.press(button("Make"));
      await page.getByRole("heading", { name: `${word}-typed` }).waitFor();
    },
    found: async (stage) =>
      says(await stage.server.api("/api/v1/platform/policies", atHome(stage)), `${stage.word}-typed`),
  },
  {
    path: "audit",
    area,
    async make(stage) {
      const rows = stage.page.getByRole("listitem").filter({ hasText: "platform.role.changed" });
      const before = await rows.count();
      const body = { name: stage.word };
      good(await stage.server.api("/api/v1/platform/roles", { ...atHome(stage), body }));
      return rows.nth(before);
    },
    async act({ hands, page, word }) {
      await hands.press(page.locator("summary").filter({ hasText: "platform.role.changed" }).first());
      await page.getByText(word).first().waitFor();
    },
    found: async (stage) => says(await stage.server.api("/api/v1/platform/audit", atHome(stage)), stage.word),
  },
];
