import { events } from "./model.ts";

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
