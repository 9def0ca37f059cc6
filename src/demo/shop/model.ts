import { type Client, defineEvents } from "../../sdk/index.ts";

/** Amounts are in cents. */
export interface OrderLine {
  sku: string;
  quantity: number;
  price: number;
}

export interface Order {
  orderId: string;
  customer: string;
  lines: OrderLine[];
  total: number;
}

// A stream for each order (`order-17`) and article (`article-lamp`): what happened to each, in order.
export type ShopEvents = {
  "article.received": { sku: string; quantity: number };
  "article.reserved": { sku: string; quantity: number; orderId: string };
  "article.released": { sku: string; quantity: number; orderId: string };
  "order.placed": Order;
  "order.reserved": { orderId: string; sku: string; quantity: number };
  "order.confirmed": { orderId: string; customer: string; total: number };
  "order.rejected": { orderId: string; customer: string; total: number };
};

export const events = defineEvents<ShopEvents>();
export type ShopClient = Client<ShopEvents>;

export const orderStream = (orderId: string) => ({ entityId: `order-${orderId}`, entityType: "order" });
export const articleStream = (sku: string) => ({ entityId: `article-${sku}`, entityType: "article" });

/** What the shop has at the start. It is too little: the last orders find their articles sold out. */
export const articles: readonly { sku: string; price: number; share: number }[] = [
  { sku: "lamp", price: 3_900, share: 0.7 },
  { sku: "chair", price: 12_500, share: 0.5 },
  { sku: "rug", price: 8_900, share: 0.6 },
  { sku: "shelf", price: 21_000, share: 0.4 },
];

const customers = ["ada", "grace", "edsger", "barbara", "tony"];

/** The bank declines every order whose number is a multiple of this. */
const declinedEvery = 7;

export const isDeclined = ({ orderId }: Pick<Order, "orderId">) => Number(orderId) % declinedEvery === 0;

/** The same orders in every demo: two articles each, one to three of the first. */
export function ordersOf(count: number): Order[] {
  return Array.from({ length: count }, (_, at) => {
    const number = at + 1;
    const line = (place: number, quantity: number): OrderLine => {
      const { sku, price } = articles[place % articles.length]!;
      return { sku, quantity, price };
    };
    const lines = [line(number, 1 + (number % 3)), line(number + 1 + (number % 2), 1)];
    const total = lines.reduce((sum, { quantity, price }) => sum + quantity * price, 0);
    return { orderId: String(number), customer: customers[number % customers.length]!, lines, total };
  });
}

/** How many of an article the shop buys for so many orders. */
export const boughtOf = ({ share }: { share: number }, orders: number) => Math.ceil(orders * share) + 3;

/** The stock of each article, as a web page would show it. */
export const stock = events.createProjection({
  name: "shop_stock",
  partitionKey: "$.data.sku",
  initialState: { free: 0, reserved: 0 },
  handlers: {
    "article.received"(state, { data }) {
      state.free += data.quantity;
    },
    "article.reserved"(state, { data }) {
      state.free -= data.quantity;
      state.reserved += data.quantity;
    },
    "article.released"(state, { data }) {
      state.free += data.quantity;
      state.reserved -= data.quantity;
    },
  },
});

/** One state: how the shop does. */
export const sales = events.createProjection({
  name: "shop_sales",
  initialState: { placed: 0, confirmed: 0, rejected: 0, turnover: 0 },
  handlers: {
    "order.placed"(state) {
      state.placed++;
    },
    "order.confirmed"(state, { data }) {
      state.confirmed++;
      state.turnover += data.total;
    },
    "order.rejected"(state) {
      state.rejected++;
    },
  },
});

/** A row for each order: SQL answers questions about them. */
export const orders = events.createProjection({
  name: "shop_orders",
  tableSql: "CREATE TABLE proj_shop_orders (id TEXT PRIMARY KEY, customer TEXT, total BIGINT, status TEXT)",
  statements: {
    "order.placed": `INSERT INTO proj_shop_orders (id, customer, total, status)
      VALUES (:data.orderId, :data.customer, :data.total, 'placed') ON CONFLICT (id) DO NOTHING`,
    "order.confirmed": "UPDATE proj_shop_orders SET status = 'confirmed' WHERE id = :data.orderId",
    "order.rejected": "UPDATE proj_shop_orders SET status = 'rejected' WHERE id = :data.orderId",
  },
});

export const report = `SELECT customer, count(*) AS orders, sum(total) AS turnover
  FROM proj_shop_orders WHERE status = 'confirmed' GROUP BY customer ORDER BY turnover DESC, customer`;
