import { createClient } from "../../sdk/index.ts";
import { until } from "../processes.ts";
import { patiently, type Stage } from "../stage.ts";
import {
  articleStream,
  articles,
  boughtOf,
  events,
  type Order,
  orderStream,
  ordersOf,
  type ShopClient,
  sales,
} from "./model.ts";
import { type ShopVerification, verifyShop } from "./verify.ts";

const ordersDefault = 200;
const endMsMax = 120_000;
/** Customers that place their orders at the same time. */
const callers = 8;
const complaintsShown = 10;

/** Fills the shelves. Answers what was bought, by article. */
async function stockUp(client: ShopClient, orders: number): Promise<Map<string, number>> {
  const bought = new Map(articles.map((article) => [article.sku, boughtOf(article, orders)]));
  await client.streams.appendMany(
    Array.from(bought, ([sku, quantity]) => ({
      ...articleStream(sku),
      events: [{ event: "article.received" as const, data: { sku, quantity } }],
    })),
  );
  return bought;
}

/** Places every order once, however often it has to ask. */
async function placeAll(client: ShopClient, orders: readonly Order[]): Promise<void> {
  const left = [...orders];
  const caller = async () => {
    for (let order = left.shift(); order; order = left.shift()) {
      const stream = orderStream(order.orderId);
      const placed = {
        event: "order.placed" as const,
        data: order,
        idempotencyKey: `${order.orderId} placed`,
      };
      await patiently("the server to take an order", () =>
        client.streams.append({ ...stream, ...placed, expectedVersion: 0 }),
      );
    }
  };
  await Promise.all(Array.from({ length: callers }, caller));
}

function table({ endings, report }: ShopVerification): string {
  const count = (wanted: string) => [...endings.values()].filter((ending) => ending === wanted).length;
  const lines = report.map(
    ({ customer, orders, turnover }) =>
      `${customer.padEnd(10)}${String(orders).padStart(6)}${(turnover / 100).toFixed(2).padStart(14)}`,
  );
  return [
    `${"customer".padEnd(10)}${"orders".padStart(6)}${"turnover".padStart(14)}`,
    ...lines,
    "",
    `${count("confirmed")} confirmed, ${count("declined")} declined by the bank, ${count("sold out")} sold out`,
  ].join("\n");
}

/**
 * A shop on streams of entities: each order starts a saga that reserves, charges and confirms, or undoes what
 * it did. Two projections and an SQL table show it, while its worker and its server are killed.
 */
export async function shopDemo(stage: Stage, flags: { orders?: string | undefined }): Promise<boolean> {
  const startedAt = Date.now();
  const { server, progress } = stage;
  const count = Math.max(1, Number(flags.orders ?? ordersDefault) || ordersDefault);
  const connection = { url: server.url, ...(server.apiKey !== undefined && { apiKey: server.apiKey }) };
  const client = createClient({ ...connection, events });
  const bought = await stockUp(client, count);
  const orders = ordersOf(count);

  const work = () => stage.startWorker("shop/worker.ts", []);
  let worker = await work();
  progress.say(`worker    process ${worker.pid}; a saga, two projections and an SQL table`);

  // What the shop shows of itself is what is waited for.
  const ended = async () => {
    const { state } = await patiently("the sales", () => client.projections.get(sales));
    return (state?.confirmed ?? 0) + (state?.rejected ?? 0);
  };
  const reach = (share: number) =>
    until(
      `${Math.round(share * 100)} % of the orders`,
      async () => {
        const done = await ended();
        progress.show(done, count, "orders ended");
        return done >= count * share ? done : undefined;
      },
      { msMax: endMsMax, everyMs: 50 },
    );

  const placing = placeAll(client, orders);
  placing.catch(() => {});
  const atWorker = await reach(0.3);
  await worker.kill("SIGKILL");
  progress.say(`kill -9   worker ${worker.pid}, at ${atWorker} of ${count}`);
  worker = await work();
  progress.say(`worker    process ${worker.pid} takes over`);
  const atServer = await reach(0.6);
  await server.own?.kill();
  progress.say(`kill -9   the server, at ${atServer} of ${count}`);
  await server.own?.start();
  progress.say("          it is back, on the same data");
  await placing;
  await reach(1);

  const found = await verifyShop(client, orders, bought);
  await worker.kill("SIGTERM");
  progress.say(`\n${table(found)}\n`);
  const { complaints } = found;
  for (const complaint of complaints.slice(0, complaintsShown)) progress.say(`WRONG     ${complaint}`);
  if (complaints.length > complaintsShown)
    progress.say(`          and ${complaints.length - complaintsShown} more`);
  const seconds = ((Date.now() - startedAt) / 1_000).toFixed(1);
  if (complaints.length === 0)
    progress.say(
      `It adds up: ${count} orders, each with one end in its stream; stock, sales and the SQL report say what the streams say, in ${seconds} s.`,
    );
  return complaints.length === 0;
}
