import { good, type Scene, says } from "./scenes.ts";

export const userOf = (word: string) => ({
  email: `${word}@example.test`,
  password: "correct horse battery staple",
});

/** Who may do what in the org, and what they did. */
export const accessScenes: readonly Scene[] = [
  {
    path: "access",
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
];
