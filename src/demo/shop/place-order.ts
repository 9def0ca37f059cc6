import { NonRetryableError } from "../../sdk/index.ts";
import { patiently } from "../stage.ts";
import { confirm, reject, reserve } from "./decisions.ts";
import { events, isDeclined, type ShopClient } from "./model.ts";

// As long as asking a bank would take, so that a kill hits orders under way.
const bankMs = 25;
const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

const definition = {
  id: "shop-order",
  name: "Carry out an order",
  event: "order.placed",
  // Attempts that end while the server is away count too.
  retry: { maxAttempts: 20, delay: 200, maxDelay: "1s" },
} as const;

/**
 * An order that was placed is reserved article by article, charged and confirmed. When an article is sold out
 * or the bank declines, the order is rejected and what it reserved is free again.
 */
export const placeOrder = (client: ShopClient) =>
  events.createFunction(definition, async ({ event: { data: order }, step, run }) => {
    const deciding = { client, order, runId: run.id };
    // An undo that fails is not tried again: it asks until the server is back.
    step.compensate("order", () => patiently("the server to reject an order", () => reject(deciding)));
    for (const line of order.lines) await step.run(`reserve ${line.sku}`, () => reserve(deciding, line));
    await step.run("charge", async () => {
      await pause(bankMs);
      if (isDeclined(order)) throw new NonRetryableError("the bank declines", { code: "DECLINED" });
    });
    await step.run("confirm", () => confirm(deciding));
    return "confirmed";
  });
