/** Bytes of one SQL text: the parser blocks the event loop, for 20 ms with the worst text of this size. */
export const sqlBytesMax = 8 * 1024;
/** Expressions inside expressions, and queries inside queries. */
export const sqlDepthMax = 100;
export const queryRowsDefault = 1_000;
export const queryRowsMax = 10_000;
export const queryMsDefault = 5_000;
export const queryMsMax = 30_000;
/** Of one answer, values as text. */
export const queryBytesMax = 16 * 1024 * 1024;
/** Rows that a page of a SQL projection may pass over. */
export const pageOffsetMax = 1_000_000;
/** Columns and constraints of a SQL projection's table. */
export const columnsMax = 200;
/** Bytes of a condition or an order of QuerySQLProjection, and values in one. */
export const filterBytesMax = 16 * 1024;
export const filterValuesMax = 1_000;
