import { afterArticleEvent, afterOrderEvent, justPlaced, noStock, type OrderState } from "./decisions.ts";
import {
  articleStream,
  articles,
  isDeclined,
  type Order,
  orderStream,
  report,
  type ShopClient,
  sales,
  stock,
  orders as table,
} from "./model.ts";

/** A projection whose worker was killed at work is another's a minute later. */
const timeout = "1m";

/** How an order ended, by its stream. */
export type Ending = "confirmed" | "declined" | "sold out";

export interface ShopVerification {
  endings: Map<string, Ending>;
  report: { customer: string; orders: number; turnover: number }[];
  /** One sentence for everything that is not as promised; empty when all is well. */
  complaints: string[];
}

/** Reads the streams, folds them here, and compares with everything that the server says of them. */
export async function verifyShop(
  client: ShopClient,
  orders: readonly Order[],
  bought: ReadonlyMap<string, number>,
): Promise<ShopVerification> {
  const complaints: string[] = [];
  const endings = new Map<string, Ending>();
  let last = 0;
  for (const order of orders) {
    const ends: string[] = [];
    let progress: OrderState = justPlaced;
    for await (const event of client.streams.read(orderStream(order.orderId).entityId)) {
      progress = afterOrderEvent(progress, event);
      if (/confirmed|rejected/.test(event.name)) ends.push(event.name);
      last = Math.max(last, event.sequence);
    }
    const { orderId } = order;
    if (ends.length !== 1) complaints.push(`order ${orderId} ended ${ends.length} times: ${ends.join(", ")}`);
    if (progress.end === "confirmed" && isDeclined(order))
      complaints.push(`order ${orderId} is confirmed, and the bank declined`);
    if (progress.end === "confirmed" && Object.keys(progress.reserved).length !== order.lines.length)
      complaints.push(`order ${orderId} is confirmed without all of its articles`);
    const isRejected = progress.end === "rejected";
    endings.set(orderId, isRejected ? (isDeclined(order) ? "declined" : "sold out") : "confirmed");
  }
  for (const { sku } of articles)
    for await (const { sequence } of client.streams.read(articleStream(sku).entityId))
      last = Math.max(last, sequence);
  for (const projection of [stock, sales, table]) {
    const { caughtUp, behindByEvents } = await client.projections.wait(projection, last, { timeout });
    if (!caughtUp) complaints.push(`${projection.name} is ${behindByEvents} events behind the orders`);
  }
  const confirmed = orders.filter(({ orderId }) => endings.get(orderId) === "confirmed");
  complaints.push(...(await complaintsOfStock(client, confirmed, bought)));
  complaints.push(...(await complaintsOfSales(client, orders.length, confirmed)));
  const { complaints: wrong, rows } = await reported(client, confirmed);
  return { endings, report: rows, complaints: [...complaints, ...wrong] };
}

/** Each article: its stream, the projection of it and the confirmed orders say the same. */
async function complaintsOfStock(
  client: ShopClient,
  confirmed: readonly Order[],
  bought: ReadonlyMap<string, number>,
): Promise<string[]> {
  const complaints: string[] = [];
  for (const { sku } of articles) {
    const { entityId } = articleStream(sku);
    const options = { initial: noStock, fromSnapshot: false };
    const { state } = await client.streams.fold(entityId, afterArticleEvent, options);
    const reserved = Object.values(state.reserved).reduce((sum, quantity) => sum + quantity, 0);
    const sold = confirmed
      .flatMap(({ lines }) => lines)
      .reduce((sum, line) => sum + (line.sku === sku ? line.quantity : 0), 0);
    const shown = (await client.projections.get(stock, { partition: sku })).state;
    if (state.free < 0) complaints.push(`${sku}: ${-state.free} were sold that the shop does not have`);
    if (state.free + reserved !== bought.get(sku))
      complaints.push(`${sku}: ${state.free} free and ${reserved} reserved of ${bought.get(sku)} bought`);
    if (reserved !== sold) complaints.push(`${sku}: ${reserved} reserved and ${sold} sold`);
    if (shown?.free !== state.free || shown.reserved !== reserved)
      complaints.push(
        `${sku}: ${state.free} free and ${reserved} reserved, and the projection has ${JSON.stringify(shown)}`,
      );
  }
  return complaints;
}

const turnoverOf = (orders: readonly Order[]) => orders.reduce((sum, { total }) => sum + total, 0);

async function complaintsOfSales(
  client: ShopClient,
  placed: number,
  confirmed: readonly Order[],
): Promise<string[]> {
  const { state } = await client.projections.get(sales);
  const wanted = {
    ...{ placed, confirmed: confirmed.length, rejected: placed - confirmed.length },
    turnover: turnoverOf(confirmed),
  };
  const isSame = Object.entries(wanted).every(
    ([name, value]) => state?.[name as keyof typeof wanted] === value,
  );
  return isSame ? [] : [`sales are ${JSON.stringify(state)}, not ${JSON.stringify(wanted)}`];
}

async function reported(client: ShopClient, confirmed: readonly Order[]) {
  const { rows: found } = await client.sql(report);
  const rows = found.map(({ customer, orders, turnover }) => ({
    ...{ customer: String(customer), orders: Number(orders), turnover: Number(turnover) },
  }));
  const complaints = rows.flatMap(({ customer, orders, turnover }) => {
    const own = confirmed.filter((order) => order.customer === customer);
    return own.length === orders && turnoverOf(own) === turnover
      ? []
      : [`the report says ${orders} orders of ${turnover} for ${customer}`];
  });
  if (rows.reduce((sum, { orders }) => sum + orders, 0) !== confirmed.length)
    complaints.push(`the report has other orders than the ${confirmed.length} confirmed ones`);
  return { rows, complaints };
}
