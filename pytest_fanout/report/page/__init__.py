"""The report as one HTML file that needs neither network nor JavaScript: verdict first, a table near each picture."""
