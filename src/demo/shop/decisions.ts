import { type EntityEvent, NonRetryableError, SvcError } from "../../sdk/index.ts";
import { articleStream, type Order, orderStream, type ShopClient, type ShopEvents } from "./model.ts";

type ShopEvent = EntityEvent<ShopEvents>;

/** What follows from the stream of an article. */
export interface Stock {
  free: number;
  /** By order. */
  reserved: Record<string, number>;
}

export const noStock: Stock = { free: 0, reserved: {} };

export function afterArticleEvent({ free, reserved }: Stock, event: ShopEvent): Stock {
  switch (event.name) {
    case "article.received":
      return { free: free + event.data.quantity, reserved };
    case "article.reserved": {
      const { orderId, quantity } = event.data;
      return { free: free - quantity, reserved: { ...reserved, [orderId]: quantity } };
    }
    case "article.released": {
      const { [event.data.orderId]: released = 0, ...others } = reserved;
      return { free: free + released, reserved: others };
    }
    default:
      return { free, reserved };
  }
}

/** What follows from the stream of an order. */
export interface OrderState {
  /** Quantities by article. */
  reserved: Record<string, number>;
  end?: "confirmed" | "rejected";
}

export const justPlaced: OrderState = { reserved: {} };

export function afterOrderEvent(order: OrderState, event: ShopEvent): OrderState {
  switch (event.name) {
    case "order.reserved":
      return { ...order, reserved: { ...order.reserved, [event.data.sku]: event.data.quantity } };
    case "order.confirmed":
      return { ...order, end: "confirmed" };
    case "order.rejected":
      return { ...order, end: "rejected" };
    default:
      return order;
  }
}

/** Whose run decides. */
interface Deciding {
  client: ShopClient;
  order: Order;
  runId: string;
}

type Append = Parameters<ShopClient["streams"]["appendMany"]>[0][number];

const snapshotEvery = 50;

/**
 * Appends what `decide` answers, all of it or nothing, if the order still stands where it was decided. Else
 * it decides again: another order may have taken the last article, or a lost worker may still be at it.
 */
async function decided(
  { client, order, runId }: Deciding,
  decide: (
    progress: OrderState,
  ) => Promise<{ event: Append["events"][number]; beside: Append[] } | undefined>,
): Promise<void> {
  const stream = orderStream(order.orderId);
  for (;;) {
    const options = { initial: justPlaced, runId };
    const { state, version } = await client.streams.fold(stream.entityId, afterOrderEvent, options);
    const found = await decide(state);
    if (!found) return;
    const own = { ...stream, expectedVersion: version, events: [found.event] };
    try {
      await client.streams.appendMany([own, ...found.beside], { runId });
      return;
    } catch (error) {
      if (!(error instanceof SvcError && error.code === "aborted")) throw error;
    }
  }
}

/** Throws when the article is sold out. */
export function reserve(
  deciding: Deciding,
  { sku, quantity }: { sku: string; quantity: number },
): Promise<void> {
  const { client, order, runId } = deciding;
  const stream = articleStream(sku);
  return decided(deciding, async ({ reserved, end }) => {
    if (reserved[sku] !== undefined) return undefined;
    if (end !== undefined) throw new NonRetryableError(`order ${order.orderId} is ${end}`, { code: "ENDED" });
    const options = { initial: noStock, snapshotEvery, runId };
    const { state, version } = await client.streams.fold(stream.entityId, afterArticleEvent, options);
    if (state.free < quantity) throw new NonRetryableError(`${sku} is sold out`, { code: "SOLD_OUT" });
    const data = { sku, quantity, orderId: order.orderId };
    const event = { event: "article.reserved" as const, data };
    return {
      event: { event: "order.reserved", data },
      beside: [{ ...stream, expectedVersion: version, events: [event] }],
    };
  });
}

const endOf = ({ orderId, customer, total }: Order) => ({ orderId, customer, total });

/** Throws when the order was rejected meanwhile. */
export function confirm(deciding: Deciding): Promise<void> {
  const { order } = deciding;
  return decided(deciding, async ({ end }) => {
    if (end === "rejected")
      throw new NonRetryableError(`order ${order.orderId} is rejected`, { code: "ENDED" });
    if (end === "confirmed") return undefined;
    return { event: { event: "order.confirmed", data: endOf(order) }, beside: [] };
  });
}

/** Gives back what is reserved, unless the order is confirmed. */
export function reject(deciding: Deciding): Promise<void> {
  const { order } = deciding;
  const { orderId } = order;
  return decided(deciding, async ({ reserved, end }) => {
    if (end !== undefined) return undefined;
    const beside = Object.entries(reserved).map(([sku, quantity]) => ({
      ...articleStream(sku),
      events: [{ event: "article.released" as const, data: { sku, quantity, orderId } }],
    }));
    return { event: { event: "order.rejected", data: endOf(order) }, beside };
  });
}
