/** What a terminal obeys instead of showing it (C0 but line ends and tabs, DEL, C1), and what turns the order of letters. */
const obeyed =
  /\r(?!\n)|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/**
 * A text as a terminal may get it. Anybody may have written parts of it: it could move the cursor, change the title, or read as
 * another text. What is obeyed is shown as JSON escapes it, so that JSON stays the same value.
 */
export const shownText = (text: string): string =>
  text.replaceAll(obeyed, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
