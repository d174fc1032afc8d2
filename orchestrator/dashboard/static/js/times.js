// Times in the viewer's zone; UTC stands in the title. Without this they are read in UTC.
const SHORT = new Intl.DateTimeFormat("sv-SE", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
});

export function localTimes(root = document) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const utc = `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
    if ("age" in time.dataset) {
      time.title = `${SHORT.format(at)} here\n${utc}`;
    } else {
      time.textContent = SHORT.format(at);
      time.title = utc;
    }
  }
}

export function zoneName() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}
