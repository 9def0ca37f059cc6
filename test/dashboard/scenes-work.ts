import { good, type Scene, type Stage, says } from "./scenes.ts";

const rpc = async ({ server }: Stage, method: string, body: object) =>
  good(await server.rpc("SvcService", method, body));

/** A function that the event of its name starts. */
const register = (stage: Stage, id: string) =>
  rpc(stage, "RegisterFunction", { id, triggers: [{ event: `${id}.asked` }] });

const emit = (stage: Stage, event: string) => rpc(stage, "Emit", { event, data: { by: stage.word } });

/** Runs, what starts them and what is done with many of them. */
export const workScenes: readonly Scene[] = [
  {
    path: "overview",
    async make(stage) {
      await register(stage, stage.word);
      await emit(stage, `${stage.word}.asked`);
      return stage.page.getByRole("main").getByRole("link", { name: "Queued" });
    },
    async act({ hands, link, page }) {
      await hands.press(link(/^Queued/));
      await page.getByRole("heading", { name: "Runs" }).waitFor();
    },
    found: async ({ server, word }) =>
      says(await server.rpc("SvcService", "ListRuns", { statuses: ["waiting_for_capacity"] }), word),
  },
  {
    path: "runs",
    async make(stage) {
      await register(stage, stage.word);
      const { runIds } = await emit(stage, `${stage.word}.asked`);
      return stage.page.locator(`[data-run="${runIds[0]}"]`);
    },
    async act({ hands, page, button, word }) {
      const row = page.locator("[data-run]").filter({ hasText: word });
      await hands.press(row.getByRole("checkbox"));
      await hands.press(button("Cancel…"));
      await hands.press(button(/^Cancel 1 run$/));
      await row.getByText("Cancelled").waitFor();
    },
    found: async ({ server, word }) =>
      says(await server.rpc("SvcService", "ListRuns", { functionId: word }), "RUN_STATUS_CANCELLED"),
  },
  {
    path: "functions",
    async make(stage) {
      await register(stage, stage.word);
      return stage.link(stage.word);
    },
    async act({ hands, page, button, link, word }) {
      await hands.press(link(word));
      await hands.press(button("Pause…"));
      await hands.press(button("Pause"));
      await page.getByRole("heading", { level: 1 }).getByText("Paused").waitFor();
    },
    found: async ({ server, word }) =>
      says(await server.rpc("SvcService", "GetFunction", { id: word }), "FUNCTION_STATUS_PAUSED"),
  },
  {
    path: "events",
    async make(stage) {
      const { eventId } = await emit(stage, `${stage.word}.came`);
      return stage.page.locator(`[data-event="${eventId}"]`);
    },
    async act({ hands, page, button, field, word }) {
      await hands.press(button("Emit…"));
      await hands.fill(field("Name"), `${word}.typed`);
      await hands.fill(field("Data (JSON)"), '{"by": "hand"}');
      await hands.press(button("Emit"));
      await page.getByRole("heading", { name: `${word}.typed` }).waitFor();
    },
    found: async ({ server, word }) => says(await server.api(`/api/v1/events?name=${word}.typed`), "hand"),
  },
  {
    path: "schedules",
    async make(stage) {
      await rpc(stage, "RegisterFunction", { id: stage.word, triggers: [{ cron: "0 2 * * *" }] });
      return stage.link(stage.word);
    },
    async act({ hands, page, link, word }) {
      await hands.press(link(word));
      await page.getByRole("heading", { name: word }).waitFor();
    },
    found: async ({ server, word }) => says(await server.api("/api/v1/schedules"), word),
  },
  {
    path: "map",
    async make(stage) {
      await register(stage, stage.word);
      return stage.page
        .getByRole("table", { name: "Lines" })
        .getByRole("link", { name: stage.word, exact: true });
    },
    async act({ hands, page, word }) {
      await hands.press(
        page.getByRole("table", { name: "Lines" }).getByRole("link", { name: word, exact: true }),
      );
      await page.getByRole("heading", { name: word }).waitFor();
    },
    found: async ({ server, word }) =>
      says(await server.rpc("SvcService", "ListFunctions", { name: word }), `${word}.asked`),
  },
  {
    path: "repairs",
    async make(stage) {
      const body = { action: "resume", filter: { function_id: stage.word }, reason: `${stage.word} is back` };
      good(await stage.server.api("/api/v1/repairs", { body }));
      return stage.page.getByText(`${stage.word} is back`);
    },
    async act(stage) {
      const { hands, page, button, field, word } = stage;
      await register(stage, word);
      await emit(stage, `${word}.missed`);
      await hands.press(button("Replay events…"));
      await hands.fill(field("Function"), word);
      await hands.fill(field("Events"), `${word}.missed`);
      await hands.fill(field("Reason"), `${word} slept`);
      await hands.press(button("Start 1 run"));
      await page.getByRole("heading", { name: /^Replay/ }).waitFor();
    },
    found: async ({ server, word }) => says(await server.api("/api/v1/repairs"), `${word} slept`),
  },
  {
    path: "workers",
    async make({ page, server, word }) {
      await server.api(`/api/v1/workers/${word}/register`, {
        body: { function_ids: ["anything"], deployment: "build-7" },
      });
      return page.getByRole("row").filter({ hasText: word }).filter({ hasText: "deployment build-7" });
    },
    async act({ hands, page, word }) {
      await hands.press(
        page.getByRole("row").filter({ hasText: word }).getByRole("link", { name: "anything" }),
      );
      await page.getByText("There is no such function here").waitFor();
    },
    found: async ({ server, word }) => says(await server.api("/api/v1/workers"), word),
  },
];
