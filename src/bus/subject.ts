/** Whether a message may be sent to the subject: tokens separated by dots, none empty, none a wildcard. */
export const isSubject = (text: string): boolean =>
  !/[\s\p{Cc}]/u.test(text) &&
  text.split(".").every((token) => token !== "" && token !== "*" && token !== ">");
