"""nvidia-smi as Debian ships it, on simulated hosts."""
import csv
import io
import re
import xml.etree.ElementTree as ElementTree

import pytest


def rows(text):
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text)) if row]


@pytest.mark.parametrize("played", ["550", *(pytest.param(release, marks=pytest.mark.long) for release in ("535", "580"))])
def test_default_table(smi, host, played):
    h = host("h100-80gb:2,t4", played)
    pid = h.hold(600)
    table = h.out(smi)
    assert f"Driver Version: {played}." in table
    assert re.search(r"\|   0  NVIDIA H100 80GB HBM3 +On", table)
    assert re.search(r"\|   2  Tesla T4 +On", table)
    used = re.findall(r"(\d+)MiB / +(\d+)MiB", table)
    assert used == [("600", "81559"), ("0", "81559"), ("0", "15360")]
    processes = re.findall(r"\| +(\d+) +N/A +N/A +(\d+) +C +(\S+) +(\d+)MiB \|", table)
    assert [(gpu, p, m) for gpu, p, _, m in processes] == [("0", str(pid), "600")]
    assert processes[0][2].endswith("sim_client")


def test_list(smi, driver, host):
    h = host("a100-80gb,rtx4090-24gb", driver)
    listed = re.findall(r"^GPU (\d): (.*) \(UUID: (GPU-[0-9a-f-]{36})\)$", h.out(smi, "-L"), re.M)
    assert [(i, n) for i, n, _ in listed] == [("0", "NVIDIA A100-SXM4-80GB"), ("1", "NVIDIA GeForce RTX 4090")]
    one = h.out(smi, "-i", listed[1][2], "--query-gpu=index", "--format=csv,noheader")
    assert one.strip() == "1"
    assert h.run(smi, "-i", "7").returncode != 0


def test_full_report(smi, driver, host):
    h = host("h100-80gb:2,v100-32gb,rtx4090-24gb", driver)
    h.hold(600)
    report = h.out(smi, "-q")
    assert report.count("Product Name") == 4
    assert re.search(r"Total +: 81559 MiB\n +Reserved +: 551 MiB\n +Used +: 600 MiB\n +Free +: 80408 MiB", report)
    assert "Unknown Error" not in report and "ERR!" not in report


def test_full_report_as_xml(smi, driver, host):
    h = host("h100-80gb,a30-24gb+mig", driver)
    pid = h.hold(600)
    first, second = ElementTree.fromstring(h.out(smi, "-q", "-x")).findall("gpu")
    assert first.findtext("product_name") == "NVIDIA H100 80GB HBM3"
    assert first.findtext("fb_memory_usage/used") == "600 MiB"
    assert [(p.findtext("pid"), p.findtext("type"), p.findtext("used_memory"))
            for p in first.iter("process_info")] == [(str(pid), "C", "600 MiB")]
    assert second.findtext("mig_mode/current_mig") == "Enabled"
    assert second.findtext("utilization/gpu_util") == "N/A"


def test_query_gpu(smi, driver, host):
    h = host("h100-80gb,l4-24gb", driver)
    h.hold(600, 1)
    fields = ("index,name,memory.total,memory.reserved,memory.used,memory.free,compute_cap,mig.mode.current,"
              "pcie.link.gen.hostmax,power.limit,clocks.max.sm,ecc.mode.current,driver_version,utilization.gpu")
    answer = rows(h.out(smi, f"--query-gpu={fields}", "--format=csv,noheader,nounits"))
    assert [row[:12] for row in answer] == [
        ["0", "NVIDIA H100 80GB HBM3", "81559", "551", "0", "81008", "9.0", "Disabled", "5", "700.00", "1980",
         "Enabled"],
        ["1", "NVIDIA L4", "23034", "414", "600", "22020", "8.9", "[N/A]", "4", "72.00", "2040", "Enabled"]]
    assert all(row[12].startswith(f"{driver}.") and row[13] == "0" for row in answer)


def test_query_compute_apps(smi, driver, host):
    h = host("h100-80gb:2", driver)
    pids = [h.hold(600, gpu) for gpu in (1, 0)]
    query = [smi, "--query-compute-apps=pid,used_memory,gpu_bus_id", "--format=csv,noheader,nounits"]
    assert sorted(rows(h.out(*query))) == sorted(
        [[str(pids[1]), "600", "00000000:01:00.0"], [str(pids[0]), "600", "00000000:04:00.0"]])


def mig_devices(smi, h):
    return re.findall(r"^  MIG (\S+) +Device +(\d+): \(UUID: (MIG-[0-9a-f-]{36})\)$",
                      h.out(smi, "-L"), re.M)


def test_mig_lifecycle(smi, driver, host):
    h = host("a100-40gb", driver)
    assert "Enabled MIG Mode" in h.out(smi, "-mig", "1")
    profiles = re.findall(r"MIG (\S+) +(\d+) +(\d)/(\d) +([\d.]+)", h.out(smi, "mig", "-lgip"))
    assert profiles[0] == ("1g.5gb", "19", "7", "7", "4.75") and len(profiles) == 7
    assert "Profile ID 14 Placements: {0,2,4}:2" in h.out(smi, "mig", "-lgipp")
    made = h.out(smi, "mig", "-cgi", "9,1g.5gb,19", "-C")
    assert re.findall(r"created GPU instance ID +(\d+)", made) == ["2", "7", "8"]
    assert [(p, i) for p, i, _ in mig_devices(smi, h)] == [("3g.20gb", "0"), ("1g.5gb", "1"), ("1g.5gb", "2")]
    full = h.run(smi, "mig", "-cgi", "0")
    assert full.returncode != 0 and "Insufficient Resources" in full.stdout + full.stderr
    pid = h.hold(600, 0 | 8 << 8 | 1 << 16)  # GPU instance 7
    table = h.out(smi)
    assert re.search(r"\|  0    7   0   1  \| +600MiB / +4864MiB", table)
    assert re.search(rf"\|    0    7    0 +{pid} +C +\S+ +600MiB \|", table)
    busy = h.run(smi, "mig", "-dci", "-gi", "7")
    assert busy.returncode != 0 and "In use by another client" in busy.stdout + busy.stderr
    h.holders.pop().kill()
    for _ in range(100):
        if h.run(smi, "mig", "-dci").returncode == 0:
            break
    h.out(smi, "mig", "-dgi")
    assert mig_devices(smi, h) == []
    assert "Disabled MIG Mode" in h.out(smi, "-mig", "0")


def test_mig_compute_instances(smi, driver, host):
    h = host("h100-80gb+mig", driver)
    h.out(smi, "mig", "-cgi", "9:4")
    assert re.search(r"MIG 3g.40gb +9 +2 +4:4", h.out(smi, "mig", "-lgi"))
    listed = h.out(smi, "mig", "-lcip")
    assert re.findall(r"MIG (\S+) +(\d)(\*?) +(\d/\d) +(\d+)", listed) == [
        ("1c.3g.40gb", "0", "", "3/3", "16"), ("2c.3g.40gb", "1", "", "1/1", "32"),
        ("3g.40gb", "2", "*", "1/1", "60")]
    h.out(smi, "mig", "-cci", "0,0,0", "-gi", "2")
    assert re.findall(r"MIG (1c\S+) +0 +(\d) +(\d:\d)", h.out(smi, "mig", "-lci")) == [
        ("1c.3g.40gb", "0", "0:1"), ("1c.3g.40gb", "1", "1:1"), ("1c.3g.40gb", "2", "2:1")]
    assert [p for p, _, _ in mig_devices(smi, h)] == ["1c.3g.40gb"] * 3
    h.out(smi, "mig", "-dci", "-ci", "1", "-gi", "2")
    assert len(mig_devices(smi, h)) == 2
