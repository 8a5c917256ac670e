package probe

import "testing"

// FuzzNvidia: whatever nvidia-smi prints, no GPU comes or goes by what is printed of it later, and a matrix is all
// there or not.
func FuzzNvidia(f *testing.F) {
	f.Add("0, GPU-1, NVIDIA A100-3-20C, 00000000:3B:00.0, 20480\n1, GPU-2, A40, 00000000:AF:00.0, [N/A]\n",
		"GPU 0: A (UUID: GPU-1)\n  MIG 3g.20gb Device 0: (UUID: MIG-5)\n", "GPU 00000000:3B:00.0\n    Virtualization Mode : VGPU\n    License Status : Licensed\n",
		"\x1b[4m\tGPU0\tGPU1\tNIC0\x1b[0m\nGPU0\t X \tNV4\tPIX\nGPU1\tNV4\t X \tSYS\n")
	f.Add("x, , , , \n", "MIG", "GPU ", "\tGPU-1\tGPU99999999999999999999\nGPU0")
	f.Add("\"", "", "GPU x\n:", "\t\n\t\n")
	f.Fuzz(func(t *testing.T, query, list, report, matrix string) {
		gpus := parseQuery([]byte(query))
		n := len(gpus)
		parseMIG(list, gpus)
		noteModes(report, gpus)
		parseMatrix(matrix, gpus)
		for _, g := range gpus {
			if len(gpus) != n || len(g.Links) != 0 && len(g.Links) != n || g.MemBytes < -1 {
				t.Fatalf("%+v of %d", g, n)
			}
		}
	})
}
