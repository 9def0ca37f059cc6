import { createFunction, NonRetryableError, type SvcFunction } from "../../src/sdk/index.ts";

/** What the sagas do to the world: it is told of each reservation and each release, by the run's id. */
export type World = (deed: "reserve" | "release", runId: string, what: string) => void | Promise<void>;

export const sagaEnds = ["fatal", "attempts", "wait", "timeout", "cancel"] as const;

/** One function for each way in which a run ends without success; each reserves two things. */
export const sagasOf = (world: World): SvcFunction[] =>
  sagaEnds.map((end) =>
    createFunction(
      {
        id: `saga-${end}`,
        event: `saga.${end}`,
        retry: { maxAttempts: 2, initialDelayMs: 10 },
        ...(end === "timeout" && { timeoutMs: 3_000 }),
      },
      async ({ step, run }) => {
        const reserve = (what: string) =>
          step.run(what, () => world("reserve", run.id, what), {
            compensate: () => world("release", run.id, what),
          });
        await reserve("seat");
        await step.sleep("nap", 1);
        await reserve("room");
        if (end === "wait") await step.waitForEvent("paid", { timeout: 50, onTimeout: "throw" });
        if (end === "timeout") await step.sleep("long", "1h");
        if (end === "cancel") await step.waitForEvent("paid");
        if (end === "fatal") throw new NonRetryableError("sold out");
        throw new Error("sold out");
      },
    ),
  );
